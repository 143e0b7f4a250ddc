"""One rank of a job of the soak: collectives of all kinds, each compared bit for bit with what it has to give.

    soak_rank.py CONTROLLER JOB RANK RANKS SWITCH SEED STEPS REJOIN WRONG

Every rank knows what all ranks give, and computes the results in its own process. It prints a line for each collective
that was right. Exit status: 0 at the end, 3 after an error of p4reduce, 4 after a wrong result.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
import torch

import p4reduce
from p4reduce.codecs import Floats
from p4reduce.codecs.formats import Bits
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.errors import P4ReduceError
from p4reduce.testing.in_process import exchange_all, sum_segment
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from rigs.ranks import MAKERS, make, odd

JOIN_S: Final = 100.0
COLLECTIVE_S: Final = 60.0
REFUSED_WITH, WRONG = 3, 4
"""Exit statuses: an error of p4reduce, and a wrong result."""
LARGEST: Final = 3000
COMPRESSORS_A_LAUNCH: Final = 3


class Checked:
    """Collectives of one rank. What each does follows from seed and step alone, so that all ranks call the same."""

    def __init__(self, comm: p4reduce.Communicator, seed: int, wrong: int = 0) -> None:
        """`wrong`: from this collective on this rank gives other tensors than the others know of; 0: never."""
        self.comm, self.seed, self.step, self._wrong = comm, seed, 0, wrong
        self._random = random.Random(seed)
        ranks = range(comm.world_size)
        names = self._random.sample(sorted(MAKERS), COMPRESSORS_A_LAUNCH)
        self._compressors = {name: (make(name), [make(name) for _ in ranks]) for name in names}
        self._kinds: dict[str, Callable[[], None]] = {
            "int32": self._int32,
            "float32": lambda: self._floats(32),
            "16 bits": lambda: self._floats(16),
            "8 bits": lambda: self._floats(8),
            "bfloat16": self._bfloat16,
            "broadcast": self._broadcast,
            "all_gather": self._all_gather,
            "bytes": self._bytes,
            "barrier": comm.barrier,
        }
        self._kinds |= {f"compressor {name}": lambda name=name: self._compressed(name) for name in names}

    def one(self) -> str:
        """Do the next collective; return its kind. AssertionError for a wrong result."""
        self.step += 1
        kind = self._random.choice(sorted(self._kinds))
        self._size = self._random.choice([1, self._random.randrange(1, 100), self._random.randrange(1, LARGEST)])
        self._density = self._random.choice([0.0, 0.05, 0.5, 1.0])
        self._kinds[kind]()
        return kind

    def _places(self) -> list[Lease]:
        own = self.comm.lease
        return [replace(own, rank=rank, switches=(LeasedSwitch(),)) for rank in range(self.comm.world_size)]

    def _arrays(self) -> list[np.ndarray]:
        """Normally distributed float32 of all ranks, of very different sizes, partly zero."""
        made = []
        for rank in range(self.comm.world_size):
            rng = np.random.default_rng([self.seed, self.step, rank])
            values = rng.standard_normal(self._size) * 2.0 ** rng.integers(-20, 20)
            made.append(np.where(rng.random(values.size) < self._density, values, 0).astype(np.float32))
        if 0 < self._wrong <= self.step:
            made[self.comm.rank] += 1
        return made

    def _int32(self) -> None:
        given = [array.view(np.int32) for array in self._arrays()]
        self._same(self.comm.all_reduce(given[self.comm.rank]), np.sum(given, axis=0, dtype=np.int32))

    def _floats(self, bits: Bits) -> None:
        given = self._arrays()
        expected = sum_segment([Floats(own, bits) for own in given], self._places()[0])
        self._same(self.comm.all_reduce(given[self.comm.rank], bits=bits), expected[self.comm.rank])

    def _bfloat16(self) -> None:
        given = [torch.from_numpy(own).to(torch.bfloat16) for own in self._arrays()]
        expected = sum_segment([Floats(own) for own in given], self._places()[0])
        got = self.comm.all_reduce(given[self.comm.rank])
        assert torch.equal(got.view(torch.int16), expected[self.comm.rank].view(torch.int16)), "bfloat16"

    def _broadcast(self) -> None:
        given, root = self._arrays(), self.step % self.comm.world_size
        self._same(self.comm.broadcast(given[self.comm.rank], root), given[root])

    def _all_gather(self) -> None:
        given = self._arrays()
        self._same(self.comm.all_gather(given[self.comm.rank]), np.stack(given))

    def _bytes(self) -> None:
        given = [own.tobytes()[: 1 + self._size % 7 + rank] for rank, own in enumerate(self._arrays())]
        assert self.comm.all_gather_bytes(given[self.comm.rank]) == given, "bytes"

    def _compressed(self, name: str) -> None:
        own, mirrors = self._compressors[name]
        given = [odd(rank, self.seed % 10**6 + self.step) for rank in range(self.comm.world_size)]
        expected = exchange_all(mirrors, given, self._places())[self.comm.rank]
        outcome, _ = all_reduce_compressed(self.comm, own, given[self.comm.rank])
        assert outcome.forms == expected.forms, name
        for key, mean in expected.means.items():
            assert torch.equal(outcome.means[key], mean), f"{name}, {key}"
            mine, other = own.residue(key), mirrors[self.comm.rank].residue(key)
            assert (mine is None and other is None) or torch.equal(mine, other), f"{name}, residue of {key}"

    def _same(self, got: np.ndarray, expected: np.ndarray) -> None:
        assert got.dtype == expected.dtype and got.shape == expected.shape, (got.shape, expected.shape)
        assert got.tobytes() == expected.tobytes(), f"{int((got != expected).sum())} of {got.size} are wrong"


def main() -> int:
    controller, job, rank, ranks, switch, seed, steps, rejoin, wrong = sys.argv[1:]
    torch.set_num_threads(1)
    try:
        with p4reduce.join(
            job,
            rank=int(rank),
            world_size=int(ranks),
            controller=controller,
            timeout_s=JOIN_S,
            collective_timeout_s=COLLECTIVE_S,
            rejoin=rejoin == "rejoin",
            switch=switch,
        ) as comm:
            checked = Checked(comm, int(seed), int(wrong))
            print("joined", flush=True)
            for _ in range(int(steps)):
                print("right:", checked.one(), flush=True)
            print("again:", comm.stats.retransmissions, flush=True)
    except P4ReduceError as error:
        print(f"error: {type(error).__name__}: {error}", flush=True)
        return REFUSED_WITH
    except AssertionError:
        print(f"wrong: {traceback.format_exc()}", flush=True)
        return WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main())
