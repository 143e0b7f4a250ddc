"""Slots: first fit; quotas: no client takes all jobs or slots; and reading HELLO frames, which scapy builds."""

from __future__ import annotations

import struct

import pytest
from msgspec.structs import replace
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import InvalidRequestError, QuotaExceededError, SwitchFullError
from p4reduce_controller.config import Config, QuotaConfig
from p4reduce_controller.registry.hello import Address, parse_hello
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.registry.slots import SlotAllocator, SlotRange
from rigs.fake_switch_client import serving
from rigs.registry import MemoryJobStore


def make_registry(**quotas: int) -> Registry:
    return Registry(SwitchGeometry(8, 32, 64), MemoryJobStore(), 1000.0, quotas=QuotaConfig(**quotas))


def test_where_slots_are_limited_a_job_has_no_more_than_128_by_default() -> None:
    registry = Registry(SwitchGeometry(8, 32, 1024), MemoryJobStore(), 10.0, quotas=QuotaConfig(slots=300))
    assert [registry.create(name, 1).slots.count for name in "ab"] == [128, 128]


@pytest.mark.fault("very many jobs or slots of one owner: QuotaExceededError; others get theirs")
def test_the_jobs_and_slots_of_an_owner_are_limited() -> None:
    registry = make_registry(jobs=2, slots=10)
    registry.create("a", 1, 4, owner="alice")
    with pytest.raises(QuotaExceededError, match="alice has 4 slots and asks for 7; one owner may have 10"):
        registry.create("b", 1, 7, owner="alice")
    registry.create("b", 1, 6, owner="alice")
    with pytest.raises(QuotaExceededError, match=r"alice has 2 jobs, the most that one owner may have \(quotas.jobs\)"):
        registry.create("c", 1, 1, owner="alice")
    assert registry.create("c", 1, 10, owner="bob").slots.base == 10, "refused jobs hold no slots"
    registry.remove("a")
    registry.create("d", 1, 4, owner="alice")


def test_concurrent_waits_of_a_member_are_limited() -> None:
    registry = make_registry()
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
BASE = struct.pack("!BBBBHHII", 2 << 4 | 4, 9, 0, 0, 0, 0, 0, 0)


def frame(payload: bytes = BASE + struct.pack("!Q", NONCE), **ip: object) -> bytes:
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
        frame(BASE),
        frame(b"\x21" + BASE[1:] + bytes(8)),
        frame(b"\x14" + BASE[1:] + bytes(8)),
        frame(BASE + bytes(9)),
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
