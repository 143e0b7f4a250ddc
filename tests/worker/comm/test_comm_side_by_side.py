"""Sums over several switches side by side: the same bits as over one, and each switch has its share of the frames."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from p4reduce import Communicator
from p4reduce.errors import CollectiveTimeoutError
from p4reduce.paths.window import Window
from p4reduce.protocol.datagram import switch_of
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.wire.frames import unpack
from p4reduce_contracts.wire.geometry import DEFAULT

RANKS = 3
RNG = np.random.default_rng(7)
DENSE = [RNG.normal(size=100_000).astype(np.float32) for _ in range(RANKS)]
SPARSE = [np.where(np.repeat(RNG.random(3125) < 0.1, 32), values, 0).astype(np.float32) for values in DENSE]


def sums_over(switches: int, tensors: list[np.ndarray], **options: object) -> tuple[list[bytes], Counter[int]]:
    """Return each rank's bits, and how many frames each switch got from rank 0, not counting retransmissions."""
    frames: set[tuple[int, bytes]] = set()

    def count(rank: int, payload: bytes) -> bool:
        if not rank:
            frames.add((switch_of(payload), bytes(payload)))
        return False

    def run(comm: Communicator) -> bytes:
        return comm.all_reduce(tensors[comm.rank]).tobytes()

    with LocalGroup(RANKS, switches=switches, slots=32, lose=count, **options) as group:  # type: ignore[arg-type]
        sums = group.run(run)
        counted = Counter(switch for switch, _ in frames)  # without the closing collective
    return sums, counted


@pytest.mark.parametrize("tensors", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("switches", [2, 3, 32])
def test_sums_have_the_bits_of_one_switch_and_each_switch_has_its_share(
    switches: int, tensors: list[np.ndarray]
) -> None:
    ((expected, *_), _), (sums, frames) = sums_over(1, tensors), sums_over(switches, tensors)
    assert set(sums) == {expected}
    assert len(frames) == switches
    assert max(frames.values()) <= 1.25 * min(frames.values()) + 4


def test_the_smallest_collectives_use_the_first_switch_alone_and_larger_ones_several() -> None:
    frames: list[int] = []

    def lose(rank: int, payload: bytes) -> bool:
        frames.append(switch_of(payload))
        return False

    def used(comm: Communicator, blocks: int) -> set[int]:
        comm.all_reduce(np.ones(blocks * DEFAULT.block_words, np.float32))
        found = set(frames)
        frames.clear()
        return found

    with LocalGroup(1, switches=4, slots=16, lose=lose) as group:
        comm = group.comms[0]
        found = [used(comm, blocks) for blocks in (8, 32, 40, 104)]
    assert found == [{0}, {0}, {0, 1}, {0, 1, 2, 3}]


@pytest.mark.parametrize("switches", [2, 3, 5, 8, 32])
@pytest.mark.parametrize("ranks", [4, 100])
def test_a_window_grows_to_all_slots_and_again_after_a_loss(switches: int, ranks: int) -> None:
    """Many ranks agree on powers of two alone (protocol/opening.py)."""
    turn = 4 * switches
    window = Window(64 * switches, turn)

    def run(losses: int = 0) -> int:
        rounds = 4 * window.slots
        agreed = window.proposal if ranks < 65 else 1 << window.proposal.bit_length() - 1
        window.finished(agreed, rounds, losses)
        return window.slots

    grown = [run() for _ in range(12)]
    assert grown == sorted(grown) and grown[-1] > 32 * switches
    assert all(slots % turn == 0 for slots in grown if slots >= turn)
    run(losses=1 << 20)
    low = run()
    assert low < grown[-1]
    if ranks < 65:
        assert [run() for _ in range(200)][-1] == grown[-1]


def test_a_slot_of_each_switch_that_was_opened_is_probed() -> None:
    """Slots that open by splitting may leave out the first one of a switch."""
    with LocalGroup(1, switches=4, slots=16) as group:
        comm = group.comms[0]
        collective = comm.path
        seen: list[tuple[bool, bytes]] = []

        def look() -> None:
            answered = collective._answered
            assert answered is not None
            for switch in range(4):
                at = answered.engine.slots["switch"] == switch  # type: ignore[call-overload]
                opened = bool(answered.engine.slots["packet_number"][at].any())  # type: ignore[call-overload]
                seen.append((opened, answered.answered_frame(switch)))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(collective, "probe_gso", look)
            for blocks in (8, 400, 3000):
                values = np.zeros(blocks * DEFAULT.block_words, np.float32)
                values[:: 7 * DEFAULT.block_words] = 1
                comm.all_reduce(values)
        assert all(bool(frame) == opened for opened, frame in seen)
        for _, frame in seen:
            assert not frame or unpack(DEFAULT, frame).job == 1


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        (1, "answers from switch switch1 at 127.0.0.1:21072 stopped"),
        (0, "finish in 0.2 s: switch switch0 at 127.0.0.1:21072 answered"),
    ],
)
def test_the_switch_of_several_that_does_not_answer_is_named(lost: int, told: str) -> None:
    """The opening RESULTs of the other switch are held back where the one without answers has slot 0."""
    with LocalGroup(1, switches=2, lose=lambda rank, payload: switch_of(payload) == lost) as group:
        with pytest.raises(CollectiveTimeoutError, match=told):
            group.comms[0].all_reduce(np.ones(10_000, np.float32), timeout_s=0.2)
        group.comms[0].close(wait=False)
