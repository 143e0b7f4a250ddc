"""The engine's rules, one at a time, with frames made by hand or by the reference switch."""

from __future__ import annotations

import numpy as np
import pytest

from p4reduce.codecs import Int32
from p4reduce.codecs.raw import raw_blocks
from p4reduce.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    CorruptSumError,
    GeometryMismatchError,
    InvalidTensorError,
)
from p4reduce.paths.window import Window
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.initial_state import KeptRecords, Records, first_rounds
from p4reduce.protocol.lookahead import look_ahead
from p4reduce.protocol.recovery import add_sample
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.protocol.timing import GRANULARITY_S, INITIAL_RTO_S
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.calls import CodecId, Kind
from p4reduce_contracts.wire.frames import Frame, pack, unpack
from p4reduce_contracts.wire.geometry import SMALL, Geometry
from p4reduce_contracts.wire.numbers import KEY_NONE, MAX_BLOCKS, PENDING
from rigs.secret import rank_secret, rank_secrets

TIMEOUT_S = 5.0


def lease(rank: int = 0, world_size: int = 2, slots: int = 4) -> Lease:
    shape, switch = (SMALL.columns, SMALL.block_words), LeasedSwitch(secret=rank_secret(rank))
    return Lease(1, "test", 7, rank, world_size, slots, *shape, switches=(switch,))


def make(source: Blocks | None = None, call: Call | None = None, rank: int = 0, world_size: int = 2) -> Collective:
    """One rank's collective; by default of a tensor of 5 frames that is all ones."""
    tensor = np.ones(5 * SMALL.frame_words, np.int32)
    source = Int32(tensor).bind(world_size, SMALL.block_words, False) if source is None else source
    call = call or Call(0, Kind.ALL_REDUCE, CodecId.INT32, 0, tensor.size)
    return Collective(Records(lease(rank, world_size), source.n_blocks), source, call, TIMEOUT_S)


def switch(world_size: int = 2) -> ReferenceSwitch:
    made = ReferenceSwitch(SMALL, 4)
    made.add_job(1, 7, world_size, 0, 4, rank_secrets(world_size))
    return made


def exchange(reference: ReferenceSwitch, sent: dict[int, list[bytes]]) -> dict[int, list[bytes]]:
    """Pass frames through the switch; what each rank gets."""
    got: dict[int, list[bytes]] = {rank: [] for rank in sent}
    for rank, frames in sent.items():
        for frame in frames:
            for to, answer in reference.process(rank, frame):
                got[to].append(answer)
    return got


def opened(received: int = 1) -> tuple[Collective, list[bytes]]:
    """A collective of two ranks that has `received` RESULTs, and all RESULTs of its opening rounds."""
    mine, other = make(), make(rank=1)
    got = exchange(switch(), {0: mine.start(0.0), 1: other.start(0.0)})
    mine.receive_burst(got[0][:received], 0.05)
    return mine, got[0]


def test_an_opening_result_before_that_of_slot_0_is_held_back() -> None:
    """Slot 0's shows whether all ranks take part: until then no block may be sent."""
    mine, other = make(), make(rank=1)
    results = exchange(switch(), {0: mine.start(0.0), 1: other.start(0.0)})[0]
    assert mine.receive_burst(results[1:], 0.1) == []
    assert mine.receive(results[1], 0.2) == []
    assert mine.stats.rounds == 0
    assert len(mine.receive(results[0], 0.3)) == 4
    assert mine.stats.rounds == 4


def test_frames_that_were_held_for_data_have_a_whole_probe_timeout() -> None:
    source = Int32(np.ones(5 * SMALL.frame_words, np.int32)).bind(1, SMALL.block_words, False)
    source.published = np.zeros(1, np.uint64)
    mine = make(source, world_size=1)
    assert mine.receive_burst(exchange(switch(1), {0: mine.start(0.0)})[0], 0.001) == []
    source.published[:] = source.n_blocks
    assert (len(mine.receive_burst([], 3.0)), mine.on_timer(3.0)) == (4, [])


def test_nothing_is_copied_before_the_opening_frames_leave() -> None:
    mine = make(source := Blocks(), Call(0, Kind.BARRIER))
    source.copy = lambda _: 7.0
    assert (mine.copy(), len(mine.start(0.0)), mine.copy()) == (0.0, 1, 7.0)


def test_opening_frames_carry_keys_and_only_slot_0_a_block() -> None:
    frames = [unpack(SMALL, frame) for frame in make(rank=1).start(0.0)]
    assert [frame.slot for frame in frames] == [0, 1, 2, 3]
    assert [frame.present for frame in frames] == [1, 0, 0, 0]
    assert [key >> 8 for key in frames[1].keys] == [4, 5, 6, 7]


def test_only_the_slots_that_have_blocks_are_used() -> None:
    source = Int32(np.ones(9 * SMALL.block_words, np.int32)).bind(2, SMALL.block_words, False)
    assert len(make(source).start(0.0)) == 3
    assert len(make(Blocks(), Call(0, Kind.BARRIER)).start(0.0)) == 1


@pytest.mark.fault(
    "ranks call different things (kind, dtype, size, root): CollectiveMismatchError on every rank at once"
)
@pytest.mark.parametrize(
    "other",
    [
        Call(1, Kind.ALL_REDUCE, CodecId.INT32, 0, 160),
        Call(0, Kind.ALL_REDUCE, CodecId.INT32, 0, 161),
        Call(0, Kind.ALL_REDUCE, CodecId.LANES, 8, 160),
        Call(0, Kind.BROADCAST, CodecId.INT32, 0, 160),
        Call(0, Kind.ALL_REDUCE, CodecId.INT32, 0, 160, layout="another name"),
    ],
)
def test_every_part_of_a_call_is_compared(other: Call) -> None:
    ranks = [make(), make(call=other, rank=1)]
    got = exchange(switch(), {rank: collective.start(0.0) for rank, collective in enumerate(ranks)})
    with pytest.raises(CollectiveMismatchError):
        ranks[0].receive_burst(got[0], 0.1)


@pytest.mark.parametrize(
    ("change", "counter"),
    [
        ({"job": 2}, "foreign"),
        ({"epoch": 8}, "foreign"),
        ({"type": 1}, "foreign"),
        ({"secret": 0}, "foreign"),
        ({"secret": rank_secret(1)}, "foreign"),
        ({"secret": rank_secret(0) ^ 1}, "foreign"),
        ({"round": 1}, "stale"),
        ({"round": 0xFFFFFFFF}, "stale"),
        ({"slot": 9}, "stale"),
        ({"seen": 1}, "malformed"),
        ({"seen": 7}, "malformed"),
        ({"present": 1, "blocks": bytes(32)}, "malformed"),
        ({"keys": (5 << 8 | 255, 5 << 8 | 255, 6 << 8 | 255, 7 << 8 | 255)}, "malformed"),  # another column's block
        ({"check": 1}, "corrupt"),  # there is no block that it could be of
        ({"keys": (KEY_NONE,) * 4}, "malformed"),  # later than this rank's own
        ({"keys": (4 << 8, 5 << 8 | 255, 6 << 8 | 255, 7 << 8 | 255)}, "malformed"),  # the exponent of Inf
    ],
)
def test_results_that_do_not_fit_are_counted_and_ignored(change: dict[str, object], counter: str) -> None:
    mine, results = opened()
    wrong = pack(SMALL, unpack(SMALL, results[1])._replace(**change))
    assert mine.receive(wrong, 0.1) == []
    assert getattr(mine.stats, counter) == 1
    assert mine.stats.rounds == 1
    assert len(mine.receive(results[1], 0.2)) == 1  # the right one still counts


def flipped(payload: bytes, bit: int, place: int = -1) -> bytes:
    """One bit of the payload's last byte, or another, turned over."""
    changed = bytearray(payload)
    changed[place] ^= bit
    return bytes(changed)


def in_data_round() -> tuple[list[Collective], ReferenceSwitch, dict[int, list[bytes]]]:
    """Two ranks, the switch, and what they sent in the first round with blocks."""
    ranks, reference = [make(), make(rank=1)], switch()
    got = exchange(reference, {rank: member.start(0.0) for rank, member in enumerate(ranks)})
    return ranks, reference, {rank: member.receive_burst(got[rank], 0.1) for rank, member in enumerate(ranks)}


@pytest.mark.fault("a block is damaged on the way down: retransmitted")
def test_a_block_damaged_on_the_way_down_is_requested_again() -> None:
    (mine, _), reference, both = in_data_round()
    sent, got = both[0], exchange(reference, both)
    assert mine.receive_burst([flipped(result, 1 << n) for n, result in enumerate(got[0])], 0.2) == []
    assert (mine.stats.corrupt, mine.stats.rounds) == (4, 4)
    repeated: list[bytes] = []
    while set(repeated) != set(sent):
        timer = mine.next_timer
        assert timer is not None and timer < TIMEOUT_S
        repeated += mine.on_timer(timer)
    answers = exchange(reference, {0: repeated})[0]
    for number in range(5):  # other damage each time is the path's, and never an error of the sum
        mine.receive(flipped(answers[0], 1 << number), 0.5 + number / 100)
    for answer in answers:
        mine.receive(answer, 0.6)
    assert mine.stats.rounds == 8


def test_a_sum_that_stays_wrong_is_an_error_that_names_the_round() -> None:
    """A word damaged on its way up: the switch has the wrong sum, and says so as often as it is asked."""
    ranks, reference, sent = in_data_round()
    at = next(n for n, frame in enumerate(sent[1]) if unpack(SMALL, frame).slot == 2)
    sent[1][at] = flipped(sent[1][at], 4)
    for rank, answers in exchange(reference, sent).items():
        member, now = ranks[rank], 0.2
        wrong = [answer for answer in answers if unpack(SMALL, answer).slot == 2]
        member.receive_burst([*wrong, *wrong, *wrong], now)  # copies that the network made count once
        with pytest.raises(CorruptSumError, match="job test, slot 2, round 1: the switch gave 3 times") as caught:
            while now < TIMEOUT_S:
                now += 0.1
                member.receive_burst(exchange(reference, {rank: member.on_timer(now), 1 - rank: []})[rank], now)
        assert (caught.value.job, caught.value.slot, caught.value.round) == ("test", 2, 1)
        assert not member.done


def test_an_opening_round_that_stays_wrong_is_an_error_too() -> None:
    """Before anybody compares the calls: they would seem to differ."""
    ranks, reference = [make(), make(rank=1)], switch()
    sent = {rank: member.start(0.0) for rank, member in enumerate(ranks)}
    sent[1][0] = flipped(sent[1][0], 1, -12)
    ranks[0].receive_burst(exchange(reference, sent)[0], 0.1)
    with pytest.raises(CorruptSumError, match="slot 0, round 0"):
        for step in range(2, 40):
            answers = exchange(reference, {0: ranks[0].on_timer(step / 10), 1: []})[0]
            ranks[0].receive_burst(answers, step / 10)


@pytest.mark.fault("a forged RESULT at a worker: not taken")
def test_a_forged_result_is_ignored() -> None:
    """Its sender has job, epoch, slot, round and the tensor's shape, but not the secret."""
    (mine, _), reference, sent = in_data_round()
    got = exchange(reference, sent)
    for result in got[0]:
        frame = unpack(SMALL, result)
        blocks = bytes(len(frame.blocks))
        for guess in (0, 1, rank_secret(1)):
            mine.receive(pack(SMALL, frame._replace(secret=guess, blocks=blocks, check=0)), 0.2)
    assert mine.stats.foreign == 3 * len(got[0])
    assert mine.stats.rounds == 4


def test_datagrams_that_are_no_frames_are_ignored() -> None:
    mine, results = opened()
    for junk in (b"", b"hello", results[1][:-1], results[1] + b"\0", b"\xff" * 40):
        assert mine.receive(junk, 0.1) == []
    assert mine.stats.malformed == 5


def test_blocks_outside_the_tensor_are_refused() -> None:
    mine, results = opened(0)
    frame = unpack(SMALL, results[0])
    last = mine.receive(results[0], 0.1)
    assert last
    beyond = frame._replace(
        round=1, present=15, check=0, blocks=bytes(128), keys=tuple((16 + c) << 8 | 255 for c in range(4))
    )
    after = beyond._replace(keys=tuple((64 + c) << 8 | 255 for c in range(4)))
    assert mine.receive(pack(SMALL, after), 0.2) == []
    assert mine.stats.malformed == 1


@pytest.mark.parametrize("block", [1, 4, 15])
def test_a_block_of_another_column_is_refused(block: int) -> None:
    """No rank holds the tensor's first 16 blocks: their keys are earlier than all that a rank has."""
    tensor = np.repeat(np.array([0, 1], np.int32), [16 * SMALL.block_words, 24 * SMALL.block_words])
    ranks = [make(Int32(tensor).bind(2, SMALL.block_words, False), rank=rank) for rank in range(2)]
    results = exchange(switch(), {rank: one.start(0.0) for rank, one in enumerate(ranks)})[0]
    frame = unpack(SMALL, results[0])
    wrong = frame._replace(keys=(block << 8 | 255, *frame.keys[1:]))
    assert ranks[0].receive(pack(SMALL, wrong), 0.1) == []
    assert (ranks[0].stats.malformed, ranks[0].stats.rounds) == (1, 0)
    right = frame._replace(keys=(0 << 8 | 255, *frame.keys[1:]))
    assert ranks[0].receive(pack(SMALL, right), 0.2) != []


def test_the_probe_timeout_doubles_and_repeats_the_same_bytes_of_slot_0() -> None:
    mine = make()
    first = mine.start(0.0)
    times, repeated, now = [], [], 0.0
    for _ in range(5):
        timer = mine.next_timer
        assert timer is not None
        now = timer
        times.append(now)
        repeated += mine.on_timer(now)
    assert times == pytest.approx([0.2, 0.6, 1.4, 2.4, 3.4])  # doubling, at most 1 s apart
    assert repeated == [first[0]] * 5
    assert mine.stats.retransmissions == 5


def test_the_deadline_says_what_came_and_was_refused() -> None:
    mine, results = opened()
    frame = unpack(SMALL, results[1])
    for change in ({"job": 2}, {"epoch": 8}, {"seen": 1}, {"round": 9}):
        mine.receive(pack(SMALL, frame._replace(**change)), 0.1)  # type: ignore[arg-type]
    refused = "2 of another job or epoch, 1 malformed or not what was agreed, 1 of a round that is over"
    with pytest.raises(CollectiveTimeoutError, match=f"frames came from .*, and none was of use: {refused}"):
        mine.on_timer(TIMEOUT_S)


def test_the_deadline_says_when_answers_stopped() -> None:
    """Also when some were refused before the last good one: those were not what was missing in the end."""
    mine, results = opened()
    mine.receive(pack(SMALL, unpack(SMALL, results[1])._replace(job=2)), 0.1)
    mine.receive(results[1], 0.2)
    with pytest.raises(CollectiveTimeoutError, match="answers from the switch at .* stopped; look for a lost link"):
        mine.on_timer(TIMEOUT_S)


@pytest.mark.parametrize(("blocks", "passed"), [(16, 0), (17, 1)])
def test_the_deadline_says_when_full_frames_alone_are_lost(blocks: int, passed: int) -> None:
    """Also where the last slot's blocks fit a shorter frame, which is answered."""
    small = Geometry(8, 32)
    source = Int32(np.ones(blocks * small.block_words, np.int32)).bind(1, small.block_words, False)
    granted = Lease(1, "test", 7, 0, 1, 4, small.columns, small.block_words)
    call = Call(0, Kind.ALL_REDUCE, CodecId.INT32, 0, blocks * small.block_words)
    mine = Collective(Records(granted, source.n_blocks), source, call, TIMEOUT_S)
    reference = ReferenceSwitch(small, 4)
    reference.add_job(1, 7, 1, 0, 4)
    sent, full = mine.start(0.0), small.max_frame_bytes
    while sent:
        answers = exchange(reference, {0: [frame for frame in sent if len(frame) < full]})[0]
        sent = mine.receive_burst(answers, 0.1)
    assert mine.stats.blocks_down == passed
    longest = small.frame_header_bytes + small.block_bytes
    text = (
        rf"127\.0\.0\.1:21072 answered frames of up to {longest} bytes, and none of {full} bytes or more: see that "
        rf"every MTU on the path is {full + 28} bytes or more"
    )
    with pytest.raises(CollectiveTimeoutError, match=text):
        mine.on_timer(TIMEOUT_S)


def test_lost_full_frames_are_not_blamed_on_the_mtu_after_one_was_answered() -> None:
    (mine, _), reference, sent = in_data_round()
    assert mine.receive_burst(exchange(reference, sent)[0], 0.1) and mine.stats.blocks_down
    with pytest.raises(CollectiveTimeoutError, match="answers from the switch at .* stopped; look for a lost link"):
        mine.on_timer(TIMEOUT_S)


def test_a_pending_of_another_round_is_ignored() -> None:
    mine = make()
    mine.start(0.0)
    stale = Frame(PENDING, 1, 0, 7, 0, 5, 1, rank_secret(0), 0, (KEY_NONE,) * 4, b"")
    mine.receive(pack(SMALL, stale), 0.1)
    with pytest.raises(CollectiveTimeoutError) as caught:
        mine.on_timer(TIMEOUT_S)
    assert caught.value.missing_ranks == ()


def test_result_before_the_end_is_refused() -> None:
    with pytest.raises(RuntimeError, match="not done"):
        make().result()


def test_too_many_blocks_are_refused() -> None:
    with pytest.raises(InvalidTensorError, match="split the tensor"):
        raw_blocks(np.zeros(0, np.uint8), 8, 4 * 8 * (MAX_BLOCKS + 1))


def test_more_ranks_than_descriptors_fit_are_refused() -> None:
    lease(0, 8)
    with pytest.raises(GeometryMismatchError, match="at most 8 ranks"):
        lease(0, 9)


@pytest.mark.parametrize("stride", [1, 2, 8, 40, 64])
@pytest.mark.parametrize("blocks", [0, 1, 7, 8, 9, 64, 65, 1003])
@pytest.mark.parametrize("held", [0.0, 0.1, 1.0])
def test_look_ahead_is_the_least_key_of_those_that_follow(blocks: int, stride: int, held: float) -> None:
    rng = np.random.default_rng(blocks * stride)
    nonzero, exponents = rng.random(blocks) < held, rng.integers(0, 255, blocks).astype(np.uint8)
    grid = np.full((-(-blocks // stride) + 1, stride), KEY_NONE, np.uint32)
    own = np.flatnonzero(nonzero)
    grid.reshape(-1)[own] = own << 8 | 255 - exponents[own].astype(np.int64)
    expected = np.minimum.accumulate(grid[::-1])[::-1].reshape(-1)
    keys = np.zeros(len(expected), np.uint32)
    look_ahead(nonzero, exponents, stride, keys)
    assert keys.tolist() == expected.tolist()


def sample(estimate: RoundTrip, seconds: float) -> None:
    add_sample(estimate.table[0], seconds, 0.0)


def test_round_trip_follows_rfc_6298() -> None:
    estimate = RoundTrip()
    assert estimate.timeout_s == INITIAL_RTO_S
    sample(estimate, 0.1)
    assert estimate.timeout_s == pytest.approx(0.1 + 4 * 0.05)
    sample(estimate, 0.2)
    assert estimate.timeout_s == pytest.approx(0.1125 + 4 * (0.75 * 0.05 + 0.25 * 0.1))
    for _ in range(200):
        sample(estimate, 0.0001)
    assert estimate.timeout_s == pytest.approx(0.0001 + GRANULARITY_S)
    assert estimate.table["min_rtt"] == 0.0001


def test_frames_are_queued_where_the_smoothed_round_trip_is_over_twice_the_least() -> None:
    estimate = RoundTrip()
    assert not estimate.queued
    for seconds, queued in ((0.001, False), (0.0019, False), (0.004, True), (0.0015, False)):
        for _ in range(50):
            sample(estimate, seconds)
        assert estimate.queued is queued


def test_few_delayed_rounds_change_the_timeout_little() -> None:
    estimate = RoundTrip()
    for number in range(300):
        sample(estimate, 0.05 if number % 5 == 4 else 0.002)
    assert estimate.timeout_s < 0.02  # by RFC 6298 alone about 0.08
    for _ in range(60):
        sample(estimate, 0.05)
    assert 0.05 < estimate.timeout_s < 0.5  # but a path that became slower is followed


@pytest.mark.parametrize(
    "runs",
    [
        # a path that loses frames here and there is not overrun; after more losses it grows slowly
        [(64, 1000, 20, 64), (64, 1000, 200, 64), (64, 1000, 201, 32), (32, 1000, 0, 72), (32, 10, 0, 32)],
        # too few rounds tell nothing; once something was lost it grows slowly
        [(64, 1000, 0, 128), (128, 511, 0, 128), (128, 512, 0, 256), (256, 5000, 1, None), (128, 5000, 0, None)]
        + [(128, 5000, 0, 144)],
        [(64, 1000, 0, 128), (128, 1000, 0, None), (128, 1000, 21, 64)],  # the doubled window was too wide
    ],
)
def test_window_shrinks_on_loss_and_grows_when_full_and_clean(runs: list[tuple[int, int, int, int | None]]) -> None:
    """Slots, rounds and losses of each collective, and the window that is proposed then."""
    window = Window(256)
    assert window.slots == 64
    for slots, rounds, losses, proposal in runs:
        window.finished(slots, rounds, losses)
        assert window.slots == slots and window.proposal == proposal or proposal is None


def test_the_windows_of_a_host_s_shards_begin_smaller_and_grow_up_to_a_limit() -> None:
    window, grown = Window(64, shards=5), []
    for _ in range(5):
        window.finished(window.proposal, 1000, 0, most=25)
        grown.append(window.slots)
    assert grown == [12, 24, 24, 25, 25]
    assert Window(64, shards=64).slots == Window.MINIMUM


def test_the_window_of_a_short_collective_stays() -> None:
    short = Window(256)
    short.finished(64, 400, 0, limited=True)
    assert short.proposal == 64
    short.finished(64, 400, 150, limited=True)
    assert short.proposal == 32


def test_a_sum_is_there_while_its_records_serve_the_next_collective() -> None:
    mine, reference = make(world_size=1), switch(1)
    sent = {0: mine.start(0.0)}
    while not mine.done:
        sent = {0: mine.receive_burst(exchange(reference, sent)[0], 0.1)}
    source = Int32(np.full(5 * SMALL.frame_words, 2, np.int32)).bind(1, SMALL.block_words, False)
    later = Collective(mine.records, source, mine.call, TIMEOUT_S, number=1)
    assert later.start(0.2) and not later.done and not later.stats.rounds
    mine.records.collective = mine
    assert (mine.result()[0] == 1).all()
    with pytest.raises(RuntimeError, match="was returned before"):
        mine.result()


def test_records_are_kept_for_some_collectives_and_little_memory() -> None:
    kept = KeptRecords(lease(), first_rounds(lease()), RoundTrip())

    def find(alike: int, blocks: int = 5) -> Records:
        return kept.find(alike, blocks, window=4, slots=4, eager=True)

    first, second = find(0), find(1)
    second.collective = object()
    for alike in range(2, KeptRecords.MOST + 1):
        assert find(0) is first and find(alike) is not first
    assert find(1) is not second and second.collective is None
    assert find(0, KeptRecords.MOST_BYTES // 4) is not find(0, KeptRecords.MOST_BYTES // 4)
