"""The registry as a state machine, by example; slots: first fit; quotas: no client takes all jobs or slots.

And reading HELLO frames, which scapy builds.
"""

from __future__ import annotations

import itertools
from typing import cast
from unittest.mock import Mock

import pytest
from msgspec.structs import replace
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_contracts.jobs.answers import Usage
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import (
    EpochError,
    InvalidRequestError,
    MemberResetError,
    PlaceTakenError,
    QuotaExceededError,
    SwitchFullError,
)
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_contracts.jobs.reasons import was_asked_for
from p4reduce_contracts.wire.numbers import MAX_JOBS
from p4reduce_controller.config import Config, QuotaConfig
from p4reduce_controller.registry.hello import Address, Hello, parse_hello
from p4reduce_controller.registry.job import MOST_COUNTED, Member
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.registry.slots import SlotAllocator, SlotRange
from p4reduce_runtime.underlay import pack_hello
from rigs.fake_switch_client import serving
from rigs.registry import MemoryStore, place

GEOMETRY = SwitchGeometry(columns=8, block_words=32, slots=1024)


def make_registry(geometry: SwitchGeometry = GEOMETRY, jobs: int = MAX_JOBS, slots: int = 0) -> Registry:
    nonces, quotas = itertools.count(1000), QuotaConfig(jobs=jobs, slots=slots)
    return Registry(geometry, MemoryStore(), 10.0, lambda: next(nonces), quotas=quotas)


def form(registry: Registry, name: str, world_size: int, now: float = 0.0) -> list[Member]:
    members = [registry.join(name, rank, world_size, now) for rank in range(world_size)]
    job = registry.get(name)
    for member in members:
        registry.hello(Hello(job.id, member.nonce, place(member.rank + 1)), now)
    assert job.grants
    registry.installed(job.grants[ONLY_SWITCH], now)
    return members


@pytest.fixture
def registry() -> Registry:
    return make_registry()


def test_a_job_counts_what_its_ranks_say_and_why_it_was_reset(registry: Registry) -> None:
    job = registry.create("train", 2)
    first, second = form(registry, "train", 2)
    registry.heartbeat(first.nonce, 0.0, usage=Usage(5, 50, 40, 1))
    registry.heartbeat(first.nonce, 0.0, usage=Usage(8, 80, 60, 2))
    assert job.usage == Usage(8, 80, 60, 2), "of what a rank says the growth is added"
    registry.leave(second.nonce, Usage(8, 70, 60, 0))
    assert job.resets == {"rank left": 1} and job.last_reset == "rank 1 left"
    registry.leave(first.nonce, Usage(9, 100, 70, 2))  # it has been dropped already
    assert job.usage == Usage(9, 170, 130, 2), "the collectives are those of rank 0"
    restored = Registry(GEOMETRY, registry._store)
    restored.restore(registry._store.jobs(), 0.0)  # type: ignore[attr-defined]
    assert restored.get("train").usage == job.usage


def test_no_count_of_a_rank_is_beyond_what_a_message_holds(registry: Registry) -> None:
    job = registry.create("train", 2)
    first, second = form(registry, "train", 2)
    for member in (first, second, first):
        for counted in (MOST_COUNTED, 0, MOST_COUNTED):
            registry.heartbeat(member.nonce, 0.0, usage=Usage(counted, counted, counted, counted))
    assert job.usage == Usage(*[MOST_COUNTED] * 4)


def test_a_shard_is_shown_below_its_job_and_nowhere_else(registry: Registry) -> None:
    registry.create("train", 2, 1, owner="a")
    assert registry.create("shard", 2, 1, owner="a", part_of="train").part_of == "train"
    assert registry.create("another", 2, 1, owner="b", part_of="train").part_of == ""
    registry.remove("train")
    with pytest.raises(InvalidRequestError, match="sums a shard itself"):
        registry.create("train", 2, 1, owner="a", part_of="shard")


def test_a_normal_end_is_no_reset(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    job = registry.create("train", 2)
    first, second = form(registry, "train", 2)
    registry.leave(first.nonce, finished=True)
    assert registry.void(second.nonce) == "rank 0 finished" and was_asked_for("rank 0 finished")
    registry.leave(second.nonce, finished=True)
    assert (job.state, job.resets, job.last_reset, registry.resets.total()) == ("FORMING", {}, None, 0)
    assert "job finished" in caplog.messages and "job reset" not in caplog.messages


@pytest.mark.parametrize("event", ["leave", "silence", "join again", "remove"])
def test_a_reset_of_an_active_job_gives_every_member_the_reason(registry: Registry, event: str) -> None:
    job = registry.create("train", 3)
    members = form(registry, "train", 3)
    first_epoch, secrets = job.epoch, {child.secret for child in job.grants[ONLY_SWITCH].children}
    if event == "leave":
        registry.leave(members[2].nonce)
        reason = "rank 2 left"
    elif event == "silence":
        for member in members[:2]:
            registry.heartbeat(member.nonce, 5.0)
        registry.sweep(9.9)
        assert job.active
        registry.sweep(10.0)
        reason = "rank 2 sent no heartbeat for 10 s"
    elif event == "join again":
        registry.join("train", 2, 3, 5.0, former=members[2].nonce)
        reason = "rank 2 joined again"
    else:
        registry.remove("train")
        reason = "job train was removed"
    for member in members:
        assert registry.heartbeat(member.nonce, 11.0) == reason
        with pytest.raises(MemberResetError, match=reason):
            registry.lease(member.nonce)
    assert not job.active
    assert registry.grants() == {}
    if event != "remove":
        registry.sweep(20.0)  # drops the member that joined again
        form(registry, "train", 3, 20.0)
        assert job.epoch > first_epoch
        assert not secrets & {child.secret for child in job.grants[ONLY_SWITCH].children}


def test_in_forming_the_others_stay_when_a_rank_leaves_or_joins_again(registry: Registry) -> None:
    job = registry.create("train", 2)
    a, old = (registry.join("train", rank, 2, 0.0) for rank in range(2))
    for member in (a, old):
        registry.hello(Hello(job.id, member.nonce, place(member.rank)), 0.0)
    taken_back = job.grants[ONLY_SWITCH]
    assert taken_back is not None
    new = registry.join("train", 1, 2, 1.0, former=old.nonce)
    assert not job.grants
    registry.installed(taken_back, 1.0)
    assert not job.active, "a grant that was taken back must not make the job active"
    assert registry.heartbeat(old.nonce, 1.0) == "rank 1 joined again"
    assert registry.heartbeat(a.nonce, 1.0) is None
    registry.hello(Hello(job.id, new.nonce, place(7)), 2.0)
    assert job.grants
    assert tuple(child.address for child in job.grants[ONLY_SWITCH].children) == (place(0), place(7))
    assert job.grants[ONLY_SWITCH].epoch != taken_back.epoch


def test_the_heartbeat_timeout_applies_in_forming_but_not_in_wait_lease(registry: Registry) -> None:
    registry.create("train", 2)
    patient, dead = (registry.join("train", rank, 2, 0.0) for rank in range(2))
    registry.wait_started(patient.nonce)
    registry.sweep(100.0)
    assert registry.heartbeat(patient.nonce, 100.0) is None
    assert registry.heartbeat(dead.nonce, 100.0) == "rank 1 sent no heartbeat for 10 s"


@pytest.mark.fault(
    "20 joins a second as a rank of a job without tokens, from when the rank has joined, through the grant, "
    "until the job has summed: PlaceTakenError; the job is not reset"
)
@pytest.mark.fault("a join at any time of a membership, also between its calls: PlaceTakenError; the job is not reset")
def test_a_rank_is_taken_from_its_join_to_its_end(registry: Registry) -> None:
    """Whatever call of the member is open or not: between two of them it has no other sign of life."""
    job = registry.create("train", 2)
    members = [registry.join("train", rank, 2, 0.0) for rank in range(2)]
    nonce = members[0].nonce

    def refused(now: float) -> None:
        registry.sweep(now)
        with pytest.raises(
            PlaceTakenError, match="rank 0 of job train is held by another worker.*: end that one first"
        ):
            registry.join("train", 0, 2, now)
        with pytest.raises(PlaceTakenError):
            registry.join("train", 0, 2, now, former=members[1].nonce)

    refused(0.1)
    registry.wait_started(nonce)
    refused(0.2)
    for member in members:
        registry.hello(Hello(job.id, member.nonce, place(member.rank + 1)), 0.3)
    refused(0.4)
    assert job.grants
    registry.installed(job.grants[ONLY_SWITCH], 0.5)
    refused(0.6)
    registry.wait_ended(nonce, 0.7)
    refused(0.8)
    registry.watch_started(nonce)
    refused(0.9)
    registry.watch_ended(nonce, 1.0)
    refused(1.9)
    assert (job.active, job.last_reset, registry.void(nonce)) == (True, None, None)
    registry.sweep(2.0)
    assert job.last_reset == "rank 0 is gone: its connection to the controller ended"
    registry.join("train", 0, 2, 2.0)


@pytest.mark.fault('a member sends no heartbeats, its connection open: reset, "rank 1 sent no heartbeat for 10 s"')
@pytest.mark.fault(
    "a worker ends between two of its calls: after its join, or after its lease: its rank is free after its "
    "heartbeat timeout, 10 s by default"
)
def test_a_worker_that_ended_between_two_calls_is_replaced_after_the_heartbeat_timeout(registry: Registry) -> None:
    job = registry.create("train", 1)
    registry.join("train", 0, 1, 0.0)
    registry.sweep(9.9)
    with pytest.raises(
        PlaceTakenError, match=r"after 10 s \(controller.heartbeat_timeout_s\) without a call at the latest"
    ):
        registry.join("train", 0, 1, 9.9)
    registry.sweep(10.0)
    (member,) = form(registry, "train", 1, 10.0)
    registry.sweep(19.9)
    assert job.active
    registry.sweep(20.0)
    assert registry.void(member.nonce) == "rank 0 sent no heartbeat for 10 s"
    registry.join("train", 0, 1, 20.0)


@pytest.mark.fault(
    "a rank that waits for its lease loses its connection and waits again: it keeps its rank, and has the "
    "heartbeat timeout to open its watch"
)
def test_a_repeated_wait_leaves_time_for_the_watch(registry: Registry) -> None:
    job = registry.create("train", 1)
    member = registry.join("train", 0, 1, 0.0)
    registry.wait_started(member.nonce)
    registry.wait_ended(member.nonce, 1.0, caller_disconnected=True)
    registry.wait_started(member.nonce)
    registry.hello(Hello(job.id, member.nonce, place(1)), 1.5)
    assert job.grants
    registry.installed(job.grants[ONLY_SWITCH], 5.0)
    registry.wait_ended(member.nonce, 5.0)
    registry.sweep(6.0)
    assert (job.active, job.last_reset) == (True, None)


@pytest.mark.fault("two launches of one job: a rank of the other launch gets PlaceTakenError until the first has left")
def test_two_launches_are_never_one_job(registry: Registry) -> None:
    job = registry.create("train", 2)
    old = registry.join("train", 0, 2, 0.0, "a restart 0")
    with pytest.raises(PlaceTakenError, match=r"launch 'a restart 0' \(rank 0\), and rank 1 belongs to the launch 'b'"):
        registry.join("train", 1, 2, 1.0, "b")
    registry.join("train", 1, 2, 1.0, "a restart 0")
    with pytest.raises(PlaceTakenError, match=r"\(ranks 0, 1\)"):
        registry.join("train", 1, 2, 2.0)
    assert sorted(job.members) == [0, 1], "no member lost its place"
    assert registry.heartbeat(old.nonce, 2.0) is None
    registry.leave(old.nonce)
    with pytest.raises(PlaceTakenError):
        registry.join("train", 0, 2, 3.0, "a restart 1")
    registry.sweep(11.0)
    assert job.run_id == ""
    registry.join("train", 0, 2, 11.0, "a restart 1")
    assert job.run_id == "a restart 1"


def test_a_run_id_is_short(registry: Registry) -> None:
    registry.create("train", 1)
    registry.join("train", 0, 1, 0.0, "x" * 256)
    with pytest.raises(InvalidRequestError, match="at most 256 characters, not 257"):
        registry.join("train", 0, 1, 0.0, "x" * 257)


def test_a_cancelled_wait_needs_another_hello(registry: Registry) -> None:
    job = registry.create("train", 2)
    a, b = (registry.join("train", rank, 2, 0.0) for rank in range(2))
    registry.wait_started(a.nonce)
    registry.hello(Hello(job.id, a.nonce, place(1)), 0.0)
    registry.wait_ended(a.nonce, 1.0, caller_disconnected=True)
    registry.hello(Hello(job.id, b.nonce, place(2)), 2.0)
    assert not job.grants
    registry.hello(Hello(job.id, a.nonce, place(1)), 3.0)
    assert job.grants


@pytest.mark.parametrize(("job_offset", "nonce_offset", "taken"), [(0, 0, True), (1, 0, False), (0, 77, False)])
def test_a_hello_needs_its_job_and_nonce(registry: Registry, job_offset: int, nonce_offset: int, taken: bool) -> None:
    job = registry.create("train", 1)
    member = registry.join("train", 0, 1, 0.0)
    hello = Hello(job.id + job_offset, member.nonce + nonce_offset, place(1))
    assert registry.hello(hello, 0.0) is taken
    assert (bool(job.grants)) is taken


def test_the_first_address_of_a_nonce_stays_and_two_ranks_cannot_have_one(registry: Registry) -> None:
    job = registry.create("train", 2)
    a, b = (registry.join("train", rank, 2, 0.0) for rank in range(2))
    assert registry.hello(Hello(job.id, a.nonce, place(1)), 0.0)
    assert not registry.hello(Hello(job.id, a.nonce, place(2)), 0.0), "another port replayed the HELLO"
    assert a.addresses == {ONLY_SWITCH: place(1)}
    assert not registry.hello(Hello(job.id, b.nonce, place(1)), 0.0)
    assert job.missing() == "the HELLO of rank 1 came from rank 0's address 10.0.0.1:4000"


def test_missing_names_the_ranks(registry: Registry) -> None:
    job = registry.create("train", 5)
    members = [registry.join("train", rank, 5, 0.0) for rank in (0, 2)]
    assert job.missing() == ("ranks 1, 3, 4 did not join; no HELLO of ranks 0, 2 came through the switch")
    registry.hello(Hello(job.id, members[0].nonce, place(1)), 0.0)
    assert "no HELLO of rank 2 came" in job.missing()


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "x" * 64, "größe", "a\n"])
def test_bad_names_are_refused(registry: Registry, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot name a job"):
        registry.create(name, 1)


@pytest.mark.parametrize(
    ("geometry", "limit"),
    [(GEOMETRY, 32), (SwitchGeometry(4, 8, 16), 8), (SwitchGeometry(1, 4, 16), 1), (SwitchGeometry(8, 64, 16), 32)],
)
def test_world_size_is_limited_by_the_geometry(geometry: SwitchGeometry, limit: int) -> None:
    registry = make_registry(geometry)
    registry.create("most", limit, 1)
    for world_size in (0, limit + 1):
        with pytest.raises(InvalidRequestError, match=f"takes 1 to {limit} ranks"):
            registry.create("more", world_size, 1)


@pytest.mark.fault("slots are used up: SwitchFullError, with the numbers")
def test_slots_are_refused_with_numbers(registry: Registry) -> None:
    registry.create("a", 1, 1000)
    assert registry.create("b", 1).slots.count == 24, "the default takes what is free"
    with pytest.raises(SwitchFullError, match=r"no room for 1 slot: .*1024 slots 0 are free \(a 1000, b 24\)"):
        registry.create("c", 1)
    with pytest.raises(InvalidRequestError, match="1 to 1024 slots"):
        registry.create("c", 1, 1025)
    registry.remove("a")
    assert registry.create("c", 1).slots.count == 250, "a quarter of the longest run"


@pytest.mark.parametrize(("limit", "counts"), [(0, [256, 192, 144, 128, 128, 128, 48]), (300, [128, 128])])
def test_by_default_jobs_have_more_slots_where_many_are_free_and_not_limited(limit: int, counts: list[int]) -> None:
    registry = make_registry(slots=limit)
    assert [registry.create(f"job{number}", 1).slots.count for number in range(len(counts))] == counts


def test_at_most_255_jobs_and_a_freed_job_id_is_reused_last(registry: Registry) -> None:
    first = registry.create("first", 1, 1)
    registry.remove("first")
    assert registry.create("second", 1, 1).id != first.id, "counters are kept by id"
    ids = {registry.create(f"job{number}", 1, 1).id for number in range(254)}
    assert len(ids) == 254
    with pytest.raises(SwitchFullError, match="255 jobs"):
        registry.create("one-more", 1, 1)


def test_without_an_epoch_members_get_the_reason(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry._store, "draw_epoch", Mock(side_effect=EpochError("all epochs are used")))
    job = registry.create("train", 1)
    member = registry.join("train", 0, 1, 0.0)
    registry.hello(Hello(job.id, member.nonce, place(1)), 0.0)
    with pytest.raises(MemberResetError, match="all epochs are used"):
        registry.lease(member.nonce)


def test_an_ephemeral_job_is_removed_after_the_timeout_without_members(registry: Registry) -> None:
    registry.create("launch", 2, ephemeral=True)
    registry.create("stays", 2)
    members = form(registry, "launch", 2)
    for member in members:
        registry.watch_started(member.nonce)
    registry.sweep(100.0)
    for member in members:
        registry.watch_ended(member.nonce, 100.0)
    registry.sweep(101.0)
    assert not registry.get("launch").members
    registry.sweep(110.9)
    registry.get("launch")
    registry.sweep(111.0)
    assert [job.name for job in registry.jobs()] == ["stays"]


def test_the_job_of_a_shard_is_removed_as_soon_as_it_has_no_members(registry: Registry) -> None:
    registry.create("whole", 2)
    registry.create("shard", 2, ephemeral=True, part_of="whole")
    registry.sweep(0.0)
    for member in form(registry, "shard", 2):
        registry.leave(member.nonce)
    registry.sweep(1.0)
    assert [job.name for job in registry.jobs()] == ["whole"]


def test_members_that_rejoin_keep_an_ephemeral_job(registry: Registry) -> None:
    registry.create("launch", 1, ephemeral=True)
    (member,) = form(registry, "launch", 1)
    registry.leave(member.nonce)
    registry.sweep(5.0)
    (member,) = form(registry, "launch", 1, now=14.0)
    registry.sweep(15.0)
    registry.leave(member.nonce)
    registry.sweep(16.0)
    registry.sweep(25.0)
    assert registry.get("launch").empty_since == 16.0


def test_an_ephemeral_job_that_was_never_joined_is_removed_after_half_a_minute(registry: Registry) -> None:
    registry.create("launch", 1, ephemeral=True)
    registry.sweep(0.0)
    registry.sweep(29.0)
    registry.get("launch")
    registry.sweep(30.0)
    assert registry.jobs() == []


def test_an_ephemeral_job_stays_until_its_removal_can_be_saved(registry: Registry) -> None:
    registry.create("launch", 1, ephemeral=True)
    (member,) = form(registry, "launch", 1)
    registry.leave(member.nonce)
    registry.sweep(0.0)

    store = cast(MemoryStore, registry._store)
    store.fail(True)
    registry.sweep(20.0)
    registry.get("launch")
    store.fail(False)
    registry.sweep(21.0)
    assert registry.jobs() == []


@pytest.mark.fault("very many jobs or slots of one owner: QuotaExceededError; others get theirs")
def test_the_jobs_and_slots_of_an_owner_are_limited() -> None:
    registry = make_registry(SwitchGeometry(8, 32, 64), jobs=2, slots=10)
    registry.create("a", 1, 4, owner="alice")
    with pytest.raises(QuotaExceededError, match="alice has 4 slots and asks for 7; one owner may have 10"):
        registry.create("b", 1, 7, owner="alice")
    registry.create("b", 1, 6, owner="alice")
    with pytest.raises(QuotaExceededError, match=r"alice has 2 jobs, the most that one owner may have \(quotas.jobs\)"):
        registry.create("c", 1, 1, owner="alice")
    assert registry.create("c", 1, 10, owner="bob").slots.base == 10, "refused jobs hold no slots"
    registry.remove("a")
    registry.create("d", 1, 4, owner="alice")


def test_concurrent_waits_of_a_member_are_limited(registry: Registry) -> None:
    registry.create("train", 1)
    member = registry.join("train", 0, 1, 0.0)
    for _ in range(4):
        registry.wait_started(member.nonce)
    with pytest.raises(InvalidRequestError, match="rank 0 of job train waits 4 times already"):
        registry.wait_started(member.nonce)


def test_quotas_of_the_configuration_hold_for_callers(config: Config) -> None:
    with serving(replace(config, quotas=QuotaConfig(jobs=1))) as running, JobClient(running.address) as client:
        client.create_job("a", 1, 4)
        with pytest.raises(QuotaExceededError, match=r"127\.0\.0\.1 has 1 jobs"):
            client.create_job("b", 1, 4)


def test_first_fit_reuses_the_first_gap_that_is_large_enough() -> None:
    slots = SlotAllocator(16)
    for owner, count in (("a", 4), ("b", 2), ("c", 4)):
        slots.take(owner, count)
    slots.release("a")
    assert slots.take("d", 5) == SlotRange(10, 5), "the gap of a is too small"
    assert slots.take("e", 3) == SlotRange(0, 3)


def test_the_error_for_fragmented_slots_gives_the_numbers() -> None:
    slots = SlotAllocator(4)
    for owner in "abcd":
        slots.take(owner, 1)
    slots.release("a")
    slots.release("c")
    with pytest.raises(SwitchFullError, match="2 are free, but at most 1 in one piece"):
        slots.take("e", 2)


NONCE = 0x0123456789ABCDEF
HELLO = pack_hello(9, NONCE)


def frame(payload: bytes = HELLO, **ip: object) -> bytes:
    ethernet = Ether(src="02:00:00:00:00:07", dst="02:00:00:00:00:01")
    udp = UDP(sport=5555, dport=21072)
    return bytes(ethernet / IP(src="10.0.0.7", dst="10.0.0.254", **ip) / udp / payload)


@pytest.mark.parametrize("padding", [b"", bytes(6)])
def test_a_hello_gives_nonce_port_and_addresses(padding: bytes) -> None:
    hello = parse_hello(3, frame() + padding)
    assert hello is not None
    assert (hello.job_id, hello.nonce) == (9, NONCE)
    assert hello.address == Address(3, 0x020000000007, 0x0A000007, 5555)
    assert (hello.address.host, hello.address.mac_text) == ("10.0.0.7", "02:00:00:00:00:07")


@pytest.mark.parametrize(
    "other",
    [
        b"",
        frame()[:-1],
        frame(HELLO[:16]),
        frame(b"\x21" + HELLO[1:]),
        frame(b"\x14" + HELLO[1:]),
        frame(HELLO + b"\0"),
        frame(frag=1),
        frame(flags="MF"),
        frame(proto=6),
        frame(options=[b"\x01" * 4]),
        frame()[:12] + b"\x86\xdd" + frame()[14:],
    ],
    ids=["empty", "cut", "no nonce", "type", "version", "long", "fragment", "more", "tcp", "options", "ipv6"],
)
def test_other_packets_are_not_hellos(other: bytes) -> None:
    assert parse_hello(3, other) is None
