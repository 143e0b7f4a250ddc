"""While a bucket travels the next one is compressed, on every rank in the same order of collectives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest
import torch

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Compressed, NoCompression, Step
from p4reduce.errors import InvalidTensorError
from p4reduce.pytorch.ddp import DDPState
from p4reduce.testing.local_group import LocalGroup
from rigs.bits import bits
from rigs.buckets import Bucket, reduce_all
from rigs.limits import LIMIT_S

BUCKETS = 4


class Watched(AdaComp):
    """AdaComp that signals when it begins to compress a bucket of one parameter; `before` may do something there."""

    name = "watched"

    def __init__(self, before: Callable[[int], None] | None = None) -> None:
        super().__init__(form="gather")
        self.begun = [threading.Event() for _ in range(BUCKETS)]
        self._before = before

    def compress(self, steps: Sequence[Step]) -> list[Compressed]:
        (step,) = steps
        index = int(step.key.removeprefix("parameter"))
        self.begun[index].set()
        if self._before is not None:
            self._before(index)
        return super().compress(steps)


def backward(state: DDPState, rank: int, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    """The means of a backward pass that gives each bucket one parameter."""
    gradients = torch.randn(BUCKETS, 40, 50, generator=torch.Generator().manual_seed(rank))
    return reduce_all(state, parameters, [*gradients])


def parameters() -> list[torch.Tensor]:
    return [torch.nn.Parameter(torch.zeros(40, 50)) for _ in range(BUCKETS)]


def test_only_the_next_bucket_is_compressed_while_one_is_sent(comm: Communicator) -> None:
    compressor = Watched()
    seen: list[tuple[bool, bool]] = []
    usual = comm.all_reduce_segments

    def slow(*args: Any, **options: Any) -> Any:
        bucket = len(seen)
        following = compressor.begun[bucket + 1 : bucket + 3]
        seen.append((all(each.wait(LIMIT_S) for each in following[:1]), any(e.wait(0.1) for e in following[1:])))
        return usual(*args, **options)

    with mock.patch.object(comm, "all_reduce_segments", slow), DDPState(comm, compressor) as state:
        backward(state, 0, parameters())
    assert seen == [(True, False)] * BUCKETS


def test_ranks_that_compress_at_different_speeds_call_the_same_collectives_in_one_order() -> None:
    order: list[list[str]] = [[] for _ in range(3)]

    def rank_main(comm: Communicator) -> Any:
        usual = comm.all_reduce_segments

        def noted(segments: Any, **options: Any) -> Any:
            order[comm.rank].append(segments[0].layout)
            return usual(segments, **options)

        compressor = Watched(lambda index: time.sleep(0.02 * ((index + comm.rank) % 3)))
        with mock.patch.object(comm, "all_reduce_segments", noted), DDPState(comm, compressor) as state:
            model = parameters()
            return bits([backward(state, comm.rank, model) for _ in range(2)])

    with LocalGroup(3) as group:
        first, *others = group.run(rank_main)
    assert others == [first, first]
    assert order[0] == order[1] == order[2] and len(order[0]) == 2 * BUCKETS


@pytest.mark.parametrize("compressor", [AdaComp, NoCompression, None])
def test_a_bucket_with_nan_found_early_is_refused_in_its_turn(
    compressor: Callable[[], Any] | None, comm: Communicator
) -> None:
    """Bucket 1 is found to hold a NaN while bucket 0 still travels; bucket 0 is summed all the same."""
    checked = threading.Event()
    usual = comm.all_reduce_segments

    def slow(*args: Any, **options: Any) -> Any:
        assert checked.wait(LIMIT_S)
        return usual(*args, **options)

    class Telling(Bucket):
        def gradients(self) -> list[torch.Tensor]:
            checked.set()
            return super().gradients()

    with mock.patch.object(comm, "all_reduce_segments", slow):
        state = DDPState(comm, compressor() if compressor is not None else None)
        good, bad = torch.ones(4, 5), torch.full((4, 5), float("nan"))
        first = state.reduce(Bucket(0, torch.nn.Parameter(torch.zeros(4, 5)), good, last=False))  # type: ignore[arg-type]
        second = Telling(1, torch.nn.Parameter(torch.zeros(4, 5)), bad, last=True)
        with pytest.raises(InvalidTensorError, match="parameter1 holds a NaN"):
            state.reduce(second)  # type: ignore[arg-type]
    assert first.wait().isfinite().all()
    state.close()
    assert comm.all_reduce(torch.ones(3)).tolist() == [1, 1, 1]
