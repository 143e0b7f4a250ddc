"""The loop over the UDP underlay, compiled."""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

from p4reduce_runtime import datagrams
from p4reduce_runtime.datagrams import ENCAP_BYTES
from p4reduce_runtime.datagrams import kernels as udp
from p4reduce_runtime.kernels import kernel
from p4reduce_switch import pump
from p4reduce_switch.fair_lock import CLAIMS, WANTED
from p4reduce_switch.program import batch as words
from p4reduce_switch.pump import (
    ACTIVE,
    ADDRESSES,
    BATCH_FRAMES,
    FRAME_BYTES,
    HEAD,
    HEADER_BYTES,
    HELD_AT,
    HELD_BYTES,
    HELD_IP,
    HELD_PORT,
    HELD_SEGMENT,
    LENGTHS,
    MAX_PORT,
    NEXT,
    OFFSETS,
    PEER_HEARD_US,
    PEER_IP_SUM,
    PEER_PRESENT,
    PEER_UDP_SUM,
    PORTS,
    SENT,
    SIZE,
    SIZES,
    Reason,
)
from p4reduce_switch.pump.addresses import (
    address_of,
    copy_bytes,
    internet_checksum,
    load_shared_word,
    ones_sum,
    udp_checksum,
)
from p4reduce_switch.pump.batches import IDLE_MS, NOTHING_LEFT, RESULTS, TURN_US, become_idle, link, may_go_on, run_on

_TURN, _WOKEN, _STRANGER, _RESULT = int(Reason.TURN), int(Reason.WOKEN), int(Reason.STRANGER), int(Reason.RESULT)
_IP_BYTES = 20
_hashed: Any = register_jitable(pump.hashed)


@register_jitable
def _swapped(number: Any) -> Any:
    """Exchange the two bytes of a 16-bit number."""
    return number >> 8 | (number & 0xFF) << 8


@register_jitable
def _put(frames: Any, at: Any, number: Any) -> None:
    frames[at], frames[at + 1] = number >> 8, number & 0xFF


@register_jitable
def _wrap(peer: Any, header: Any, payload: Any, length: Any, frames: Any, at: Any) -> None:
    """Write the frame around a payload at `frames[at:]`, as `UdpUnderlay.wrap` does.

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
def _payload_bytes(peer: Any, results: Any, at: Any, length: Any) -> Any:
    """Return the bytes of payload in a frame to this peer, -1 where `UdpUnderlay._unwrap` refuses it."""
    if length < ENCAP_BYTES or results[at + 12] != 8 or results[at + 13] != 0 or results[at + 14] != 0x45:
        return -1
    size = (int(results[at + 38]) << 8 | int(results[at + 39])) - 8
    if results[at + 23] != 17 or size < 0 or ENCAP_BYTES + size > length:
        return -1
    ip = int(results[at + 30]) << 24 | int(results[at + 31]) << 16 | int(results[at + 32]) << 8 | int(results[at + 33])
    port = int(results[at + 36]) << 8 | int(results[at + 37])
    return size if ip == peer[datagrams.TO_IP] and port == peer[datagrams.TO_PORT] else -1


@register_jitable
def _send_results(loop: Any, batch: Any, io: Any, peers: Any, order: Any, results: Any, table: Any) -> Any:
    """Send the results from SENT on, up to one whose port is not a peer's; return whether there is such a one.

    Those to one peer stay in their order; each peer gets its own in runs.
    """
    active = 0
    for index in range(loop[SENT], batch[words.FRAMES_OUT]):
        port = table[PORTS, index]
        if port < 1 or port > MAX_PORT or peers[port, PEER_PRESENT] == 0:
            break
        loop[SENT] = index + 1
        size = _payload_bytes(peers[port], results, table[OFFSETS, index], table[LENGTHS, index])
        if size < 0:
            loop[pump.NOT_FOR_PEER] += 1
            continue
        order[SIZE, index] = size
        active = link(order, index, port, active)
    for turn in range(active):
        port = order[ACTIVE, turn]
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
        loop[pump.DATAGRAMS_OUT] += tried - io[datagrams.LOST]
        loop[pump.BYTES_OUT] += total - io[datagrams.LOST_BYTES]
        loop[pump.SEND_ERRORS] += io[datagrams.LOST]
        loop[pump.BUFFER_FULL] += count - tried
    return loop[SENT] < batch[words.FRAMES_OUT]


@register_jitable
def _port_of(ip: Any, udp_port: Any, table: Any) -> Any:
    """Return the port of a peer, 0 of a stranger."""
    key = ip << 16 | udp_port
    row = _hashed(key)
    while table[row, 1] != 0 and table[row, 0] != key:
        row = (row + 1) & (len(table) - 1)
    return table[row, 1]


@register_jitable
def _frame_held(
    loop: Any, batch: Any, peer: Any, header: Any, port: Any, received: Any, frames: Any, table: Any
) -> Any:
    """Make frames of what the receive buffer holds, as many as there is room for; return whether there is more room."""
    count, at = batch[words.FRAMES], 0
    if count > 0:
        at = table[OFFSETS, count - 1] + table[LENGTHS, count - 1]
    while loop[HELD_AT] >= 0:
        if count == BATCH_FRAMES or at + FRAME_BYTES > len(frames):
            batch[words.FRAMES] = count
            return False
        length = min(loop[HELD_SEGMENT], loop[HELD_BYTES] - loop[HELD_AT])
        at += -(at + ENCAP_BYTES) % 8
        _wrap(peer, header, address_of(received) + loop[HELD_AT], length, frames, at)
        table[OFFSETS, count], table[LENGTHS, count], table[PORTS, count] = at, ENCAP_BYTES + length, port
        at += ENCAP_BYTES + length
        count += 1
        loop[pump.DATAGRAMS_IN] += 1
        loop[pump.BYTES_IN] += length
        loop[HELD_AT] += length
        if loop[HELD_AT] >= loop[HELD_BYTES]:
            loop[HELD_AT] = -1
    batch[words.FRAMES] = count
    return True


@kernel(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[:,::1], uint8[:,::1], int64[:,::1], "
    "uint8[::1], uint8[::1], int64[:,::1], uint8[::1], int64[:,::1], int64[:,::1])"
)
def turn(
    loop: Any,
    batch: Any,
    io: Any,
    polled: Any,
    lock: Any,
    peers: Any,
    headers: Any,
    addresses: Any,
    received: Any,
    frames: Any,
    frame_table: Any,
    results: Any,
    result_table: Any,
    order: Any,
) -> Any:
    """Serve the socket until Python is needed; return the `Reason`. The arrays are those of `Buffers` and `PeerTable`.

    `lock` are the words of the lock that the caller has lent.
    """
    begun, claims = udp.microseconds(io), lock[CLAIMS]
    now = begun
    while True:
        while True:  # what is left of a batch
            if _send_results(loop, batch, io, peers, order, results, result_table):
                return _RESULT
            stopped = run_on(loop, batch, now)
            if stopped == NOTHING_LEFT:
                break
            if stopped != RESULTS:
                return stopped
        now = udp.microseconds(io)
        if load_shared_word(address_of(lock) + 8 * WANTED) != 0 or now - begun > TURN_US:
            return _TURN
        while True:  # all that is there, as far as there is room
            if loop[HELD_AT] < 0:
                got = udp.receive(io, received, 0)
                if got < 0:  # nothing, or an answer to an earlier datagram: its peer is gone
                    break
                loop[HELD_AT], loop[HELD_BYTES], loop[HELD_SEGMENT] = 0, got, io[datagrams.SEGMENT]
                loop[HELD_IP], loop[HELD_PORT] = io[datagrams.SENDER_IP], io[datagrams.SENDER_PORT]
            port = _port_of(loop[HELD_IP], loop[HELD_PORT], addresses)
            if port == 0:
                break
            if loop[HELD_AT] == 0:
                udp.follow(io, peers[port], loop[HELD_BYTES])
            peers[port, PEER_HEARD_US] = now
            header = address_of(headers) + HEADER_BYTES * port
            if not _frame_held(loop, batch, peers[port], header, port, received, frames, frame_table):
                break
        if batch[words.FRAMES] == 0:
            if loop[HELD_AT] >= 0:
                return _STRANGER
            ready = 0 if become_idle(lock) else udp.wait(polled, IDLE_MS)
            if not may_go_on(lock, claims):
                return _TURN
            if ready < 0 or polled[1] >> 48 != 0:
                return _WOKEN
            begun = udp.microseconds(io)
            now = begun
