"""Hand-written rows for the project's own program: what a round, a reply and a drop look like, one after another."""

from __future__ import annotations

from conformance.case import Arrive, Case, PacketOut, Step, Write, insert
from p4reduce_runtime.p4runtime.entries import DigestConfig
from rigs import wire
from rigs.pipeline import (
    EPOCH,
    JOB,
    SLOT_COUNT,
    SWITCH_IP,
    SWITCH_MAC,
    UPLINK_PORT,
    from_host,
    rank_host,
    rank_mac,
    udp_frame,
)
from rigs.recorded.network import BROADCAST, OTHER_IP, Network, arp, ethernet, fix_checksum, ping
from rigs.secret import rank_secret

NONE = wire.KEY_NONE


def cases() -> list[Case]:
    found = []
    for name in ("small", "default"):
        network = Network(name, 2)
        found.append(network.case(f"p4reduce_{name}_rows", [*_before(network), *_rounds(network), *_around(network)]))
        leaf = Network(name, 2, leaf=True)
        found.append(leaf.case(f"p4reduce_{name}_leaf", [*_before(leaf), *_rounds(leaf), *_answers(leaf)]))
    return found


def _before(network: Network) -> list[Step]:
    """An unwritten switch floods nowhere and sends no answer; then it is written, the job last."""
    digests = next(entry for entry in network.switching() if isinstance(entry, DigestConfig))
    return [
        insert(digests),
        Arrive(1, arp(0, SWITCH_IP)),
        network.contribution(0, 0, 0, _keys(network), {}),
        insert(*network.switching()),  # the digests are on already
        network.contribution(0, 0, 0, _keys(network), {}),  # not admitted
        insert(*network.job()),
        insert(network.admission(0), network.admission(1)),
        insert(network.admission(0)),  # there already
    ]


def _keys(network: Network, *first: int) -> tuple[int, ...]:
    return (*first, *(NONE,) * (network.geometry.columns - len(first)))


def _words(network: Network, *first: int) -> bytes:
    words = [*first, *(0,) * (network.geometry.block_words - len(first))]
    return b"".join(word.to_bytes(4, "big") for word in words)


def _rounds(network: Network) -> list[Step]:
    """Two ranks through a few rounds of slot 0, and the edges of slots, rounds and words."""
    last = network.geometry.columns - 1

    def send(rank: int, round_: int, keys: tuple[int, ...], blocks: dict[int, bytes], slot: int = 0) -> Arrive:
        return network.contribution(rank, slot, round_, keys, blocks)

    opening = [send(rank, 0, _keys(network, wire.key_of(rank, 100 + rank)), {}) for rank in (0, 1)]
    first = send(0, 1, _keys(network, NONE), {0: _words(network, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF)})
    second = send(1, 1, _keys(network, 7), {0: _words(network, 2, 1, 0x80000000, 1), last: _words(network, 5)})
    return [
        *opening,
        first,
        first,  # PENDING
        second,  # RESULT to both
        first,  # RESULT to rank 0 alone
        second,
        opening[0],  # still there: the other version
        send(0, 2, _keys(network), {}),
        opening[1],  # stale
        send(1, 2, _keys(network), {}),
        first,
        send(0, 3, _keys(network), {}),
        first,  # overwritten: stale
        send(1, 3, _keys(network), {c: _words(network, c) for c in range(network.geometry.columns)}),
        send(0, 7, _keys(network), {}),  # two rounds of this version ahead: stale
        send(0, 0x80000003, _keys(network), {}),
        send(0, 0x7FFFFFFF, _keys(network), {}),
        send(0, 5, _keys(network), {last: _words(network, 0xFFFFFFFF)}),  # its next, without a 4
        send(1, 0x80000005, _keys(network), {}),
        send(1, 5, _keys(network), {}),
        *(send(rank, 0xFFFFFFFF, _keys(network, 3 - rank), {}, 1) for rank in (0, 1)),
        *(send(rank, 0, _keys(network, rank), {}, 1) for rank in (0, 1)),
        *(send(rank, 1, _keys(network, rank), {}, 1) for rank in (1, 0)),
        *(send(rank, 0, _keys(network, 0), {0: _words(network, 9)}, 3) for rank in (1, 1, 0, 0)),  # the last slot
        send(0, 0, _keys(network), {}, 4),  # outside the lease
    ]


def _answers(network: Network) -> list[Step]:
    """Return the parent's answers between its children's contributions, and frames that are not its answer."""
    every = {column: _words(network, column, 0xFFFFFFFF) for column in range(network.geometry.columns)}
    result = network.answer(wire.RESULT, 2, 4, every)
    level, secret, own = 45, 58, rank_host(0, rank_secret(0))
    return [
        result,
        result,
        network.answer(wire.PENDING, 2, 4, {}),
        network.answer(wire.PENDING, 2, 4, {}, level=7),
        network.answer(wire.RESULT, 2, 4, {}, level=255),
        network.contribution(0, 2, 4, _keys(network), every),
        result,
        network.contribution(0, 2, 4, _keys(network), every),
        network.contribution(1, 2, 4, _keys(network, 3), {}) if network.least_blocks == 0 else result,
        network.answer(wire.RESULT, SLOT_COUNT, 4, every),
        network.answer(wire.RESULT, 2, 4, every, epoch=EPOCH + 1),
        network.answer(wire.RESULT, 2, 4, every, job=JOB + 1),
        network.answer(wire.CONTRIBUTE, 2, 4, every, seen=0),
        network.answer(wire.RESULT, 2, 4, every, secret=own.secret),
        Arrive(1, from_host(own, network.answer(wire.RESULT, 2, 4, every).frame[42:])),
        Arrive(1, from_host(own, network.answer(wire.RESULT, 2, 4, every, secret=own.secret).frame[42:])),
        Arrive(1, from_host(own, network.answer(wire.PENDING, 2, 4, {}, secret=own.secret).frame[42:])),
        Arrive(1, from_host(own, network.answer(wire.CONTRIBUTE, 2, 6, every, seen=0, level=1).frame[42:])),
        Arrive(1, result.frame),
        *(Arrive(UPLINK_PORT, result.frame[:place] + b"\xa5" + result.frame[place + 1 :]) for place in range(42, 78)),
        *(Arrive(UPLINK_PORT, result.frame[:size]) for size in range(40, len(result.frame), 31)),
        Arrive(UPLINK_PORT, result.frame[:level] + b"\1" + result.frame[level + 1 :]),
        Arrive(UPLINK_PORT, result.frame[:secret] + bytes(8) + result.frame[secret + 8 :]),
    ]


def _around(network: Network) -> list[Step]:
    """Return frames that are no contributions, and writes between frames."""
    hello = wire.pack_hello(JOB, 0x0123456789ABCDEF)
    good = network.contribution(0, 2, 0, _keys(network), {0: _words(network, 1)})
    return [
        Arrive(1, udp_frame(0, hello)),
        Arrive(40, udp_frame(7, hello)),  # HELLO needs no admission
        *(Arrive(1, udp_frame(0, hello[:place] + b"\1" + hello[place + 1 :])) for place in range(2, 16)),
        *(Arrive(1, udp_frame(0, hello[:size])) for size in (0, 1, 8, 15, 16, 20, 23)),
        Arrive(1, udp_frame(0, hello + b"\0")),
        *(Arrive(1, good.frame[:size]) for size in range(14, len(good.frame), 3)),  # cut anywhere behind Ethernet
        Arrive(1, fix_checksum(good.frame[:16] + (len(good.frame) - 13).to_bytes(2, "big") + good.frame[18:])),
        good,
        Arrive(2, good.frame),  # at another rank's port
        PacketOut(1, arp(0, OTHER_IP)),
        PacketOut(2, b"anything at all"),
        PacketOut(510, bytes(20)),
        Arrive(1, arp(0, SWITCH_IP)),
        Arrive(2, ping(1, SWITCH_IP, SWITCH_MAC, b"ping")),
        Arrive(1, ethernet(rank_mac(1), 0, 0x0801, b"known")),
        Arrive(2, ethernet(rank_mac(1), 1, 0x0801, b"to where it came from")),
        Arrive(1, ethernet(BROADCAST, 0, 0x0801, b"")),
        Arrive(33, ethernet(BROADCAST, 9, 0x0801, b"at a port outside the flood group")),
        Write((("delete", network.switching()[0]),)),
        Arrive(1, arp(0, SWITCH_IP)),
        good,
        insert(network.switching()[0]),
        Write((("modify", network.admission(0, epoch=60000)),)),
        good,
        network.contribution(0, 2, 0, _keys(network), {}, epoch=60000),
        Write((("delete", network.job()[0]),)),
        network.contribution(1, 2, 0, _keys(network), {}),
    ]
