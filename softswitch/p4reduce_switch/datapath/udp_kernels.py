"""The datapath loop over the UDP underlay."""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

from p4reduce_runtime import datagrams
from p4reduce_runtime.datagrams import ENCAP_BYTES
from p4reduce_runtime.datagrams import kernels as udp
from p4reduce_runtime.kernels import kernel
from p4reduce_switch import datapath
from p4reduce_switch.datapath import (
    ACTIVE,
    ADDRESSES,
    BATCH_FRAMES,
    FRAME_BYTES,
    HEAD,
    HEADER_BYTES,
    LENGTHS,
    MAX_PORT,
    NEXT,
    OFFSETS,
    PEER_IP_SUM,
    PEER_LAST_SEEN_US,
    PEER_PRESENT,
    PEER_UDP_SUM,
    PENDING_AT,
    PENDING_BYTES,
    PENDING_IP,
    PENDING_PORT,
    PENDING_SEGMENT,
    PORTS,
    SENT,
    SIZE,
    SIZES,
    Reason,
)
from p4reduce_switch.datapath.addresses import (
    Octets,
    Words,
    address_of,
    copy_bytes,
    internet_checksum,
    load_shared_word,
    ones_sum,
    udp_checksum,
)
from p4reduce_switch.datapath.batch_kernels import (
    BATCH_DONE,
    IDLE_MS,
    MAX_RUN_US,
    SEND_RESULTS,
    append_result,
    enter_idle,
    leave_idle,
    run_batch,
)
from p4reduce_switch.fair_lock import REQUESTS, WAITERS
from p4reduce_switch.program import batch as words

_YIELD, _WOKEN, _UNKNOWN_PEER, _OTHER_PORT = (
    int(Reason.YIELD),
    int(Reason.WOKEN),
    int(Reason.UNKNOWN_PEER),
    int(Reason.OTHER_PORT),
)
_IP_BYTES = 20
_hashed: Any = register_jitable(datapath.hashed)


@register_jitable
def _swapped(number: int) -> Any:
    """Exchange the two bytes of a 16-bit number."""
    return number >> 8 | (number & 0xFF) << 8


@register_jitable
def _put(frames: Octets, at: int, number: int) -> None:
    frames[at], frames[at + 1] = number >> 8, number & 0xFF


@register_jitable
def _wrap(peer: Words, header: int, payload: int, length: int, frames: Octets, at: int) -> None:
    """Write a payload with its headers at `frames[at:]`, as `UdpUnderlay.wrap` does.

    `header` and `payload` are addresses.
    """
    base = address_of(frames) + at
    copy_bytes(base, header, ENCAP_BYTES)
    copy_bytes(base + ENCAP_BYTES, payload, length)
    udp_bytes = 8 + length
    _put(frames, at + 16, _IP_BYTES + udp_bytes)
    _put(frames, at + 24, internet_checksum(peer[PEER_IP_SUM] + _IP_BYTES + udp_bytes))
    _put(frames, at + 38, udp_bytes)
    total = peer[PEER_UDP_SUM] + 2 * udp_bytes + _swapped(ones_sum(payload, length) % 0xFFFF)
    _put(frames, at + 40, udp_checksum(total))


@register_jitable
def _payload_bytes(peer: Words, results: Octets, at: int, length: int) -> Any:
    """Return the payload bytes of a frame to this peer; -1 where `UdpUnderlay._unwrap` returns None."""
    if length < ENCAP_BYTES or results[at + 12] != 8 or results[at + 13] != 0 or results[at + 14] != 0x45:
        return -1
    size = (int(results[at + 38]) << 8 | int(results[at + 39])) - 8
    if results[at + 23] != 17 or size < 0 or ENCAP_BYTES + size > length:
        return -1
    ip = int(results[at + 30]) << 24 | int(results[at + 31]) << 16 | int(results[at + 32]) << 8 | int(results[at + 33])
    port = int(results[at + 36]) << 8 | int(results[at + 37])
    return size if ip == peer[datagrams.TO_IP] and port == peer[datagrams.TO_PORT] else -1


@register_jitable
def _send_results(
    loop: Words, batch: Words, io: Words, peers: Words, order: Words, results: Octets, table: Words
) -> Any:
    """Send the results from SENT on, up to one whose port is not a peer's; return whether there is such a result.

    Results to one peer keep their order, and use GSO.
    """
    active = 0
    for index in range(loop[SENT], batch[words.FRAMES_OUT]):
        port = table[PORTS, index]
        if port < 1 or port > MAX_PORT or peers[port, PEER_PRESENT] == 0:
            break
        loop[SENT] = index + 1
        size = _payload_bytes(peers[port], results, table[OFFSETS, index], table[LENGTHS, index])
        if size < 0:
            loop[datapath.NOT_FOR_PEER] += 1
            continue
        order[SIZE, index] = size
        active = append_result(order, index, port, active)
    for number in range(active):
        port = order[ACTIVE, number]
        index, count, total = order[HEAD, port] - 1, 0, 0
        order[HEAD, port] = 0
        while index >= 0:
            order[ADDRESSES, count] = address_of(results) + table[OFFSETS, index] + ENCAP_BYTES
            order[SIZES, count] = order[SIZE, index]
            index, count = order[NEXT, index], count + 1
        io[datagrams.LOST], io[datagrams.LOST_BYTES] = 0, 0
        tried = udp.send(io, peers[port], order[ADDRESSES], order[SIZES], 0, count)
        for place in range(tried):
            total += order[SIZES, place]
        loop[datapath.DATAGRAMS_OUT] += tried - io[datagrams.LOST]
        loop[datapath.BYTES_OUT] += total - io[datagrams.LOST_BYTES]
        loop[datapath.SEND_ERRORS] += io[datagrams.LOST]
        loop[datapath.BUFFER_FULL] += count - tried
    return loop[SENT] < batch[words.FRAMES_OUT]


@register_jitable
def _port_of(ip: int, udp_port: int, table: Words) -> Any:
    """Return the port of a peer; 0 for an unknown address."""
    key = ip << 16 | udp_port
    row = _hashed(key)
    while table[row, 1] != 0 and table[row, 0] != key:
        row = (row + 1) & (len(table) - 1)
    return table[row, 1]


@register_jitable
def _frame_pending(
    loop: Words, batch: Words, peer: Words, header: int, port: int, received: Octets, frames: Octets, table: Words
) -> Any:
    """Turn the datagrams in the receive buffer into frames; return whether all of them found space."""
    count, at = batch[words.FRAMES], 0
    if count > 0:
        at = table[OFFSETS, count - 1] + table[LENGTHS, count - 1]
    while loop[PENDING_AT] >= 0:
        if count == BATCH_FRAMES or at + FRAME_BYTES > len(frames):
            batch[words.FRAMES] = count
            return False
        length = min(loop[PENDING_SEGMENT], loop[PENDING_BYTES] - loop[PENDING_AT])
        at += -(at + ENCAP_BYTES) % 8
        _wrap(peer, header, address_of(received) + loop[PENDING_AT], length, frames, at)
        table[OFFSETS, count], table[LENGTHS, count], table[PORTS, count] = at, ENCAP_BYTES + length, port
        at += ENCAP_BYTES + length
        count += 1
        loop[datapath.DATAGRAMS_IN] += 1
        loop[datapath.BYTES_IN] += length
        loop[PENDING_AT] += length
        if loop[PENDING_AT] >= loop[PENDING_BYTES]:
            loop[PENDING_AT] = -1
    batch[words.FRAMES] = count
    return True


@kernel(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[:,::1], uint8[:,::1], int64[:,::1], "
    "uint8[::1], uint8[::1], int64[:,::1], uint8[::1], int64[:,::1], int64[:,::1])"
)
def run_once(
    loop: Words,
    batch: Words,
    io: Words,
    polled: Words,
    lock: Words,
    peers: Words,
    headers: Octets,
    addresses: Words,
    received: Octets,
    frames: Octets,
    frame_table: Words,
    results: Octets,
    result_table: Words,
    order: Words,
) -> Any:
    """Serve the socket until Python is needed; return the `Reason`. The arrays are those of `Buffers` and `PeerTable`.

    `lock` are the words of the lock that the caller holds.
    """
    begun, requests = udp.microseconds(io), lock[REQUESTS]
    now = begun
    while True:
        while True:  # the rest of a batch
            if _send_results(loop, batch, io, peers, order, results, result_table):
                return _OTHER_PORT
            stopped = run_batch(loop, batch, now)
            if stopped == BATCH_DONE:
                break
            if stopped != SEND_RESULTS:
                return stopped
        now = udp.microseconds(io)
        if load_shared_word(address_of(lock) + 8 * WAITERS) != 0 or now - begun > MAX_RUN_US:
            return _YIELD
        while True:  # receive until nothing is left, or the frames are full
            if loop[PENDING_AT] < 0:
                got = udp.receive(io, received, 0)
                if got < 0:  # nothing, or an ICMP error for an earlier datagram
                    break
                loop[PENDING_AT], loop[PENDING_BYTES], loop[PENDING_SEGMENT] = 0, got, io[datagrams.SEGMENT]
                loop[PENDING_IP], loop[PENDING_PORT] = io[datagrams.SENDER_IP], io[datagrams.SENDER_PORT]
            port = _port_of(loop[PENDING_IP], loop[PENDING_PORT], addresses)
            if port == 0:
                break
            if loop[PENDING_AT] == 0:
                udp.follow(io, peers[port], loop[PENDING_BYTES])
            peers[port, PEER_LAST_SEEN_US] = now
            header = address_of(headers) + HEADER_BYTES * port
            if not _frame_pending(loop, batch, peers[port], header, port, received, frames, frame_table):
                break
        if batch[words.FRAMES] == 0:
            if loop[PENDING_AT] >= 0:
                return _UNKNOWN_PEER
            ready = 0 if enter_idle(lock) else udp.wait(polled, IDLE_MS)
            if not leave_idle(lock, requests):
                return _YIELD
            if ready < 0 or polled[1] >> 48 != 0:
                return _WOKEN
            begun = udp.microseconds(io)
            now = begun
