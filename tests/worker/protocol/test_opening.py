"""Slot 0's opening frame in jobs with more ranks than it has places for: what it holds, and what ranks read in it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4reduce.codecs import Int32
from p4reduce.collectives import broadcast
from p4reduce.errors import CollectiveMismatchError, CollectiveTimeoutError, Reason
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call, describe
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.initial_state import Records
from p4reduce.protocol.opening import read_calls
from p4reduce.protocol.refusal import code_of
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch, Level
from p4reduce_contracts.wire.calls import CodecId, Kind
from p4reduce_contracts.wire.frames import Frame, pack, unpack
from p4reduce_contracts.wire.geometry import DEFAULT, Geometry
from p4reduce_contracts.wire.numbers import KEY_NONE, PENDING, RESULT
from p4reduce_contracts.wire.opening import SharedOpening, most_ranks, opening_words
from rigs.secret import rank_secret
from rigs.wire import check_of

SIZES = (65, 128, 1000, 1024)
CALL = Call(5, Kind.ALL_REDUCE, CodecId.INT32, 0, 100, "one layout")
OTHERS = (
    replace(CALL, number=6),
    replace(CALL, kind=Kind.BROADCAST),
    replace(CALL, codec=CodecId.LANES, detail=16),
    replace(CALL, detail=200),
    replace(CALL, elements=101),
    replace(CALL, layout="another"),
    Call(5, Kind.BARRIER),
)
WINDOW = 4


@dataclass(frozen=True)
class Said:
    """The call or refusal that one rank describes."""

    call: Call = CALL
    window: int = WINDOW

    @property
    def words(self) -> tuple[int, int, int, int]:
        return self.call.words(self.window)

    @property
    def refuses(self) -> bool:
        return self.call.kind == Kind.REFUSED

    @property
    def compared(self) -> tuple[int, ...]:
        first, second, *others = self.words
        return first, second & 0xFFFF0000, *others


def refusal(reason: Reason = Reason.NOT_FINITE) -> Said:
    return Said(Call(CALL.number, Kind.REFUSED, detail=reason))


def lease(rank: int, ranks: int) -> Lease:
    """The lease of a rank in racks of up to 32."""
    racks = tuple(tuple(range(begin, min(begin + 32, ranks))) for begin in range(0, ranks, 32))
    own = Level(f"leaf{rank // 32}", tuple((one,) for one in racks[rank // 32]), "root")
    levels = own, Level("root", racks)
    switch = LeasedSwitch(secret=rank_secret(rank), levels=levels)
    return Lease(1, "test", 7, rank, ranks, 4, DEFAULT.columns, DEFAULT.block_words, switches=(switch,))


def definition(said: Sequence[Said]) -> np.ndarray:
    """The sums of an opening frame's words, place by place, as the protocol page defines them."""
    ranks = len(said)
    length = -(-ranks // 32)
    rows = -(-ranks // length)
    sums, digests = np.zeros((rows, 4), np.uint64), np.zeros(length, np.uint64)
    bitmap, windows, reasons = np.zeros(-(-ranks // 32), np.uint64), np.zeros(16, np.uint64), np.zeros(16, np.uint64)
    for rank, mine in enumerate(said):
        windows[int(np.log2(mine.window))] += np.uint64(1)
        if mine.refuses:
            bitmap[rank // 32] += np.uint64(1 << rank % 32)
            reasons[min(15, code_of(Reason(mine.call.detail)))] += np.uint64(1)
        else:
            sums[rank // length] += np.array(mine.compared, np.uint64)
            digests[rank % length] += np.uint64(zlib.crc32(np.array(mine.compared, ">u4").tobytes()))
    return (np.concatenate([sums.reshape(-1), digests, bitmap, windows, reasons]) & np.uint64(0xFFFFFFFF)).astype(
        np.uint32
    )


def blocks_of(said: Sequence[Said]) -> bytes:
    words = definition(said)
    return np.pad(words, (0, -len(words) % DEFAULT.block_words)).astype(">u4").tobytes()


def read(rank: int, said: Sequence[Said], blocks: bytes = b"") -> tuple[dict[int, Reason], int]:
    """Return what the rank reads in `blocks`, by default those of what was said."""
    return read_calls(lease(rank, len(said)), blocks or blocks_of(said), said[rank].words)


def mismatch(rank: int, said: Sequence[Said], blocks: bytes = b"") -> CollectiveMismatchError:
    with pytest.raises(CollectiveMismatchError) as caught:
        read(rank, said, blocks)
    return caught.value


def with_some(ranks: int, some: Mapping[int, Said]) -> list[Said]:
    return [some.get(rank, Said()) for rank in range(ranks)]


def engine(rank: int, mine: Said, ranks: int) -> Collective:
    held = Int32(np.full(100, rank, np.int32)).bind(ranks, DEFAULT.block_words, False)
    source = Blocks() if mine.refuses else held
    return Collective(Records(lease(rank, ranks), source.n_blocks), source, mine.call, 5.0, proposal=mine.window)


def result(mine: Collective, said: Sequence[Said]) -> Frame:
    """Begin; return the RESULT of slot 0's opening frame."""
    opening, blocks, rank = unpack(DEFAULT, mine.start(0.0)[0]), blocks_of(said), mine._lease.rank
    check, leaves = check_of(opening.present, blocks, DEFAULT.block_words), (1 << -(-len(said) // 32)) - 1
    return opening._replace(type=RESULT, seen=leaves, secret=rank_secret(rank), check=check, blocks=blocks, level=1)


def pending(mine: Collective, seen: int, level: int) -> bytes:
    """Begin; return a PENDING of slot 0."""
    opening = unpack(DEFAULT, mine.start(0.0)[0])
    told = opening._replace(type=PENDING, present=0, seen=seen, check=0, blocks=b"", level=level)
    return pack(DEFAULT, told._replace(secret=rank_secret(mine._lease.rank)))


@pytest.mark.parametrize("ranks", SIZES)
def test_the_frames_of_all_ranks_add_up_to_the_definition(ranks: int) -> None:
    rng = np.random.default_rng(ranks)
    said = [replace(Said(), window=int(rng.integers(1, 5))) for _ in range(ranks)]
    for rank, reason in zip(rng.choice(ranks, len(Reason), replace=False).tolist(), Reason, strict=True):
        said[rank] = refusal(reason)
    said[int(rng.integers(ranks))] = Said(replace(CALL, elements=99))
    total = np.zeros(DEFAULT.frame_words, np.uint32)
    for rank, mine in enumerate(said):
        frame = unpack(DEFAULT, engine(rank, mine, ranks).start(0.0)[0])
        assert frame.check == check_of(frame.present, frame.blocks, DEFAULT.block_words)
        words = np.frombuffer(frame.blocks, ">u4")
        assert frame.present == (1 << -(-SharedOpening(ranks).words // 32)) - 1
        total[: len(words)] += words.astype(np.uint32)
    expected = definition(said)
    np.testing.assert_array_equal(total[: len(expected)], expected)
    assert not total[len(expected) :].any()


@pytest.mark.parametrize("ranks", SIZES)
def test_equal_calls_go_on(ranks: int) -> None:
    """Without Python, in the kernel, and by `read_calls` alike."""
    said = [replace(Said(), window=WINDOW - (rank == 40)) for rank in range(ranks)]
    for rank in {0, 1, 40, ranks - 1}:
        mine = engine(rank, said[rank], ranks)
        answer = result(mine, said)
        if rank == 0:
            answer = answer._replace(keys=(126, *(KEY_NONE,) * 7))
        mine.receive(pack(DEFAULT, answer), 0.1)
        assert (mine.stats.malformed, mine.stats.rounds, mine.next_window) == (0, 1, 2)
        assert read(rank, said) == ({}, 2)


@pytest.mark.parametrize("level", [0, 2])
def test_a_result_of_another_level_than_the_root_is_malformed(level: int) -> None:
    """A leaf that was set up as a root never gives a sum."""
    mine = engine(3, Said(), 65)
    answer = result(mine, [Said()] * 65)
    assert mine.receive(pack(DEFAULT, answer._replace(level=level)), 0.1) == []
    assert (mine.stats.malformed, mine.stats.rounds) == (1, 0)
    mine.receive(pack(DEFAULT, answer), 0.1)
    assert mine.stats.rounds == 1


@pytest.mark.parametrize("ranks", SIZES)
def test_two_halves_that_call_different_collectives_see_it(ranks: int) -> None:
    """Also where a row's difference is a multiple of 2^32: the kind is in the highest bits."""
    for halves in (lambda rank: rank % 2, lambda rank: rank < ranks // 2, lambda rank: rank // 32 % 2):
        said = [Said(replace(CALL, kind=Kind.BROADCAST) if halves(rank) else CALL) for rank in range(ranks)]
        for rank in (0, 1, ranks // 2, ranks - 1):
            assert mismatch(rank, said).calls == {rank: describe(said[rank].compared)}


def test_several_reasons_are_named_together() -> None:
    assert str(Reason.NOT_FINITE | Reason.OTHER) == "an error of its own program, or a NaN or an infinity"


@pytest.mark.parametrize("refusing", [range(1), range(1024), range(1023)])
def test_all_may_refuse(refusing: range) -> None:
    said = with_some(1024, dict.fromkeys(refusing, refusal()))
    for rank in (0, 1023):
        assert read(rank, said)[0] == dict.fromkeys(refusing, Reason.NOT_FINITE)


def test_a_refusal_while_the_others_close_is_a_mismatch() -> None:
    closing = [Said(Call(CALL.number, Kind.CLOSE))] * 100
    closing[17] = refusal()
    for rank in (0, 99):
        assert mismatch(rank, closing).calls == {rank: describe(closing[rank].compared)}


@pytest.mark.parametrize(("window", "common"), [(1, 1), (2, 2), (3, 2), (1023, 512), (1024, 1024), (0xFFFF, 0x8000)])
def test_the_next_window_is_the_smallest_proposal_rounded_down(window: int, common: int) -> None:
    said = [Said(window=0xFFFF)] * 128
    said[100] = Said(window=window)
    assert read(0, said) == ({}, common)


@settings(max_examples=100)
@given(st.data())
def test_what_every_rank_reads_is_true(data: st.DataObject) -> None:
    """Against the list of all calls: who refuses, why, and whether they differ."""
    ranks = data.draw(st.one_of(st.sampled_from(SIZES), st.integers(65, 1024)))
    anyone = st.integers(0, ranks - 1)
    some = {rank: refusal(data.draw(st.sampled_from(list(Reason)))) for rank in data.draw(st.sets(anyone, max_size=4))}
    for rank in data.draw(st.sets(anyone, max_size=4)):
        some[rank] = Said(data.draw(st.sampled_from(OTHERS)))
    said = with_some(ranks, some)
    blocks = blocks_of(said)
    refusing = {rank for rank in some if said[rank].refuses}
    odd = {rank for rank in some if not said[rank].refuses}
    reasons = Reason(0)
    for rank in refusing:
        reasons |= Reason(said[rank].call.detail)
    for rank in {*some, data.draw(anyone)}:
        if odd and rank not in refusing:
            error, own = mismatch(rank, said, blocks), describe(said[rank].compared)
            assert error.calls == {rank: own}
            assert f"rank {rank}: {own}; at least one other rank called another" in str(error)
        else:
            assert read(rank, said, blocks) == (dict.fromkeys(refusing, reasons), WINDOW)


@pytest.mark.parametrize(
    ("level", "seen", "text", "missing"),
    [
        (0, 0xFFFFFFFF & ~(1 << 3 | 1 << 5), "switch leaf1 still waits for ranks 35, 37", (35, 37)),
        (1, 0b011, "switch root still waits for the switch of ranks 64 to 95", tuple(range(64, 96))),
        (1, 0b110, "switch root still waits for the switch of ranks 0 to 31", tuple(range(32))),
    ],
)
def test_what_is_missing_is_named_by_the_level_of_the_switch_that_waits(
    level: int, seen: int, text: str, missing: tuple[int, ...]
) -> None:
    mine = engine(40, Said(), 96)
    mine.receive(pending(mine, seen, level), 0.1)
    assert mine.stats.pendings == 1
    assert mine.obstacle() == (text, missing)
    waiting = mine.waiting(1.0)
    assert waiting is not None
    assert (waiting.level, waiting.missing) == (level, ~seen & (0xFFFFFFFF if level == 0 else 7))
    with pytest.raises(CollectiveTimeoutError, match=f"did not finish in 5 s: {text}$") as caught:
        mine.on_timer(5.0)
    assert caught.value.missing_ranks == missing


def test_a_pending_of_a_level_above_the_root_is_malformed() -> None:
    mine = engine(40, Said(), 96)
    mine.receive(pending(mine, 1, 2), 0.1)
    assert (mine.stats.pendings, mine.stats.malformed) == (0, 1)


def test_without_answers_the_links_above_are_named() -> None:
    mine = engine(40, Said(), 96)
    answer = result(mine, [Said()] * 96)
    assert "and that the job is active, and that its links to root carry frames. " in mine.obstacle().text
    mine.receive(pack(DEFAULT, answer), 0.1)
    assert mine.stats.rounds == 1
    assert mine.obstacle().text.endswith("(`p4reduce stats`); see that its links to root carry frames")


def test_broadcasts_from_high_ranks_differ() -> None:
    """A descriptor has 8 bits for the root."""
    calls = {root: broadcast(lease(0, 1024), np.zeros(3), root).call() for root in (44, 254, 255, 256, 300, 1023)}
    assert len({call.words(1) for call in calls.values()}) == len(calls)
    assert "from root 254 (" in str(calls[254])
    assert "from root 255 or above (" in str(calls[300])


def test_how_many_ranks_an_opening_frame_describes() -> None:
    for columns in range(1, 9):
        for block_words in range(4, 68, 4):
            words, most = columns * block_words, Geometry(columns, block_words).max_world_size
            assert most == most_ranks(words)
            assert all(opening_words(ranks, words) <= words for ranks in range(1, most + 1))
            assert most == 1024 or opening_words(most + 1, words) > words
    assert [most_ranks(words) for words in (32, 128, 256, 512)] == [8, 46, 1024, 1024]
