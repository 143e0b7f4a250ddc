"""The datapath loop over interfaces: AF_PACKET sockets with PACKET_VNET_HDR, see `ports/super_frames.py`."""

from __future__ import annotations

import errno
from typing import Any

from numba.extending import register_jitable

from p4reduce_runtime.datagrams import ENCAP_BYTES, RUN_BYTES
from p4reduce_runtime.datagrams import kernels as udp
from p4reduce_runtime.kernels import kernel
from p4reduce_switch.datapath import (
    ACTIVE,
    BATCH_FRAMES,
    FRAME_BYTES,
    HEAD,
    LENGTHS,
    MAX_PORT,
    NEXT,
    OFFSETS,
    PENDING_AT,
    PENDING_BYTES,
    PENDING_PORT,
    PENDING_SEGMENT,
    PORTS,
    RECEIVE_BYTES,
    SENT,
    Reason,
)
from p4reduce_switch.datapath import ethernet as e
from p4reduce_switch.datapath.addresses import (
    Octets,
    Words,
    address_of,
    copy_bytes,
    internet_checksum,
    load_byte,
    load_shared_word,
    load_uint32,
    load_word,
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

_YIELD, _WOKEN, _OTHER_PORT = int(Reason.YIELD), int(Reason.WOKEN), int(Reason.OTHER_PORT)
_REFUSALS = (errno.EINVAL, errno.EIO, errno.EMSGSIZE, errno.EOPNOTSUPP)
_VIRTIO_BYTES = 10
_UDP_RUN = 1 | 5 << 8 | ENCAP_BYTES << 16 | 34 << 48
_CHECKSUM_OFFSET = 6
_IP, _UDP = 14, 34
_OUTGOING = 4
_NOTHING, _OWN = -1, -2


@register_jitable
def _put(frames: Octets, at: int, number: int) -> None:
    frames[at], frames[at + 1] = number >> 8, number & 0xFF


@register_jitable
def _put_little(frames: Octets, at: int, number: int) -> None:
    """Write a checksum made of a `ones_sum`."""
    frames[at], frames[at + 1] = number & 0xFF, number >> 8


@register_jitable
def _swapped(number: int) -> Any:
    return number >> 8 | (number & 0xFF) << 8


@register_jitable
def _pseudo_sum(frame: int, udp_bytes: int) -> Any:
    """The `ones_sum` of the pseudo header: addresses, protocol and length."""
    return ones_sum(frame + 26, 8) + _swapped(17) + _swapped(udp_bytes)


@register_jitable
def _finish(frames: Octets, at: int, length: int) -> None:
    """Write lengths and checksums into the headers of one datagram of a run."""
    frame = address_of(frames) + at
    udp_bytes = length - _UDP
    _put(frames, at + 16, length - _IP)
    frames[at + 24], frames[at + 25] = 0, 0
    _put_little(frames, at + 24, internet_checksum(ones_sum(frame + _IP, 20)))
    _put(frames, at + 38, udp_bytes)
    frames[at + 40], frames[at + 41] = 0, 0
    _put_little(frames, at + 40, udp_checksum(_pseudo_sum(frame, udp_bytes) + ones_sum(frame + _UDP, udp_bytes)))


@register_jitable
def _receive(loop: Words, scratch: Words, interface: Words, received: Octets) -> Any:
    """Receive one frame or super-frame as pending; return its bytes, NOTHING, or OWN for an outgoing one."""
    base = address_of(scratch)
    scratch[e.VECTOR], scratch[e.VECTOR + 1] = base + 8 * e.VIRTIO, _VIRTIO_BYTES
    scratch[e.VECTOR + 2], scratch[e.VECTOR + 3] = address_of(received), RECEIVE_BYTES
    scratch[e.MESSAGE], scratch[e.MESSAGE + 1] = base + 8 * e.NAME, 24
    scratch[e.MESSAGE + 2], scratch[e.MESSAGE + 3] = base + 8 * e.VECTOR, 2
    scratch[e.MESSAGE + 4], scratch[e.MESSAGE + 5], scratch[e.MESSAGE + 6] = 0, 0, 0
    scratch[e.NAME + 1] = 0
    got = udp.recvmsg(interface[e.DESCRIPTOR], base + 8 * e.MESSAGE, 0)
    if got < _VIRTIO_BYTES:
        return _NOTHING
    length = got - _VIRTIO_BYTES
    if scratch[e.NAME + 1] >> 16 & 0xFF == _OUTGOING:
        return _OWN
    virtio, segment = scratch[e.VIRTIO], scratch[e.VIRTIO] >> 32 & 0xFFFF
    frame, start, offset = address_of(received), virtio >> 48 & 0xFFFF, scratch[e.VIRTIO + 1] & 0xFFFF
    loop[PENDING_AT], loop[PENDING_BYTES], loop[PENDING_SEGMENT] = 0, length, 0
    if virtio >> 8 & 0xFF == 5 and 0 < segment < length - ENCAP_BYTES and start == _UDP and _is_udp(frame):
        loop[PENDING_AT], loop[PENDING_SEGMENT] = ENCAP_BYTES, segment
        interface[e.GSO_SEEN] = 1
    elif virtio & 1 != 0 and start + offset + 2 <= length:
        total = ones_sum(frame + start, length - start)
        checksum = udp_checksum(total) if offset == _CHECKSUM_OFFSET else internet_checksum(total)
        _put_little(received, start + offset, checksum)
    return length


@register_jitable
def _is_udp(frame: int) -> Any:
    """Ethernet, IPv4 without options, UDP."""
    return load_word(frame + 8) >> 32 & 0xFFFFFF == 0x450008 and load_byte(frame + 23) == 17


@register_jitable
def _frame_pending(loop: Words, batch: Words, interface: Words, received: Octets, frames: Octets, table: Words) -> Any:
    """Turn the receive buffer into frames; return whether all of them found space."""
    count, at = batch[words.FRAMES], 0
    if count > 0:
        at = table[OFFSETS, count - 1] + table[LENGTHS, count - 1]
    while loop[PENDING_AT] >= 0:
        if count == BATCH_FRAMES or at + FRAME_BYTES > len(frames):
            batch[words.FRAMES] = count
            return False
        at += -(at + ENCAP_BYTES) % 8
        length, start, segment = loop[PENDING_BYTES], address_of(received), loop[PENDING_SEGMENT]
        if segment == 0:
            copy_bytes(address_of(frames) + at, start, length)
            loop[PENDING_AT] = -1
        else:
            number = (loop[PENDING_AT] - ENCAP_BYTES) // segment
            size = min(segment, length - loop[PENDING_AT])
            copy_bytes(address_of(frames) + at, start, ENCAP_BYTES)
            copy_bytes(address_of(frames) + at + ENCAP_BYTES, start + loop[PENDING_AT], size)
            _put(frames, at + 18, ((load_byte(start + 18) << 8 | load_byte(start + 19)) + number) & 0xFFFF)
            _finish(frames, at, ENCAP_BYTES + size)
            loop[PENDING_AT] += size
            if loop[PENDING_AT] >= length:
                loop[PENDING_AT] = -1
            length = ENCAP_BYTES + size
        table[OFFSETS, count], table[LENGTHS, count], table[PORTS, count] = at, length, interface[e.PORT]
        at += length
        count += 1
        interface[e.FRAMES_IN] += 1
        interface[e.BYTES_IN] += length
    batch[words.FRAMES] = count
    return True


@register_jitable
def _may_run(frame: int, length: int, limit: int) -> Any:
    """Whether the kernel makes the same frame of it when it cuts up a run: a whole UDP datagram, and all is right.

    A datagram that is never fragmented needs no identification, and one without a checksum may get one.
    """
    if length <= ENCAP_BYTES or length > limit or not _is_udp(frame) or load_uint32(frame + 20, 0) & 0xFFFF != 0x40:
        return False
    total = load_byte(frame + 16) << 8 | load_byte(frame + 17)
    udp_bytes = load_byte(frame + 38) << 8 | load_byte(frame + 39)
    if total != length - _IP or udp_bytes != length - _UDP or ones_sum(frame + _IP, 20) % 0xFFFF != 0:
        return False
    if load_byte(frame + 40) | load_byte(frame + 41) == 0:
        return True
    return (_pseudo_sum(frame, udp_bytes) + ones_sum(frame + _UDP, udp_bytes)) % 0xFFFF == 0


@register_jitable
def _same_way(one: int, other: int) -> Any:
    """Whether two headers differ in lengths, identification and checksums alone."""
    return (
        load_word(one) == load_word(other)
        and load_word(one + 8) == load_word(other + 8)
        and load_uint32(one + 20, 0) == load_uint32(other + 20, 0)
        and load_word(one + 26) == load_word(other + 26)
        and load_uint32(one + 34, 0) == load_uint32(other + 34, 0)
    )


@register_jitable
def _send_run(
    scratch: Words, octets: Octets, interface: Words, first: int, count: int, segment: int, total: Any
) -> Any:
    """Send `count` datagrams, whose payloads are in the vector, as one frame; return whether the kernel took it."""
    base = address_of(scratch)
    headers, at = base + 8 * e.HEADERS, 8 * e.HEADERS
    if count == 1:
        scratch[e.VIRTIO], scratch[e.VIRTIO + 1] = 0, 0
        scratch[e.VECTOR + 2], scratch[e.VECTOR + 3] = first, ENCAP_BYTES + total
        scratch[e.MESSAGE + 3] = 2
    else:
        copy_bytes(headers, first, ENCAP_BYTES)
        _put(octets, at + 16, ENCAP_BYTES - _IP + total)
        octets[at + 24], octets[at + 25] = 0, 0
        _put_little(octets, at + 24, internet_checksum(ones_sum(headers + _IP, 20)))
        _put(octets, at + 38, 8 + total)
        pseudo = _pseudo_sum(headers, 8 + total) % 0xFFFF
        _put_little(octets, at + 40, pseudo)
        scratch[e.VIRTIO], scratch[e.VIRTIO + 1] = _UDP_RUN | segment << 32, _CHECKSUM_OFFSET
        scratch[e.VECTOR + 2], scratch[e.VECTOR + 3] = headers, ENCAP_BYTES
        scratch[e.MESSAGE + 3] = 2 + count
    scratch[e.VECTOR], scratch[e.VECTOR + 1] = base + 8 * e.VIRTIO, _VIRTIO_BYTES
    scratch[e.MESSAGE], scratch[e.MESSAGE + 1], scratch[e.MESSAGE + 2] = 0, 0, base + 8 * e.VECTOR
    scratch[e.MESSAGE + 4], scratch[e.MESSAGE + 5], scratch[e.MESSAGE + 6] = 0, 0, 0
    return udp.sendmsg(interface[e.DESCRIPTOR], base + 8 * e.MESSAGE, 0) >= 0


@register_jitable
def _send_chain(
    scratch: Words, octets: Octets, interface: Words, order: Words, results: Octets, table: Words, index: int
) -> None:
    """Send the results of one port, from this one on."""
    alone = 0  # frames that go by themselves because their run was refused
    while index >= 0:
        first, length, after = address_of(results) + table[OFFSETS, index], table[LENGTHS, index], order[NEXT, index]
        count, total, last = 1, length - ENCAP_BYTES, length
        allowed = interface[e.GSO_ALLOWED] + interface[e.GSO_SEEN] >= 2 and interface[e.GSO_ALLOWED] > 0
        if alone > 0:
            alone -= 1
        elif allowed and after >= 0 and _may_run(first, length, interface[e.MAX_FRAME]):
            scratch[e.VECTOR + 4], scratch[e.VECTOR + 5] = first + ENCAP_BYTES, total
            while after >= 0 and count < e.MAX_SEGMENTS and last == length:
                frame, size = address_of(results) + table[OFFSETS, after], table[LENGTHS, after]
                on_wire = total + size + count * ENCAP_BYTES
                if size > length or on_wire > RUN_BYTES or not _may_run(frame, size, length):
                    break
                if not _same_way(first, frame):
                    break
                at = e.VECTOR + 4 + 2 * count
                scratch[at], scratch[at + 1] = frame + ENCAP_BYTES, size - ENCAP_BYTES
                count, total, last, after = count + 1, total + size - ENCAP_BYTES, size, order[NEXT, after]
        if _send_run(scratch, octets, interface, first, count, length - ENCAP_BYTES, total):
            interface[e.FRAMES_OUT] += count
            interface[e.BYTES_OUT] += total + count * ENCAP_BYTES
        elif count > 1:
            alone = count
            if udp.errno_now() in _REFUSALS:
                interface[e.GSO_ALLOWED] = 0
            continue
        else:
            interface[e.SEND_ERRORS] += 1
        index = after


@register_jitable
def _send_results(
    loop: Words,
    batch: Words,
    scratch: Words,
    octets: Octets,
    interfaces: Words,
    rows: Words,
    order: Words,
    results: Octets,
    table: Words,
) -> Any:
    """Send the results from SENT on, up to one whose port is not an interface; return whether there is one."""
    active = 0
    for index in range(loop[SENT], batch[words.FRAMES_OUT]):
        port = table[PORTS, index]
        if port < 0 or port > MAX_PORT or rows[port] < 0:
            break
        loop[SENT] = index + 1
        active = append_result(order, index, port, active)
    for number in range(active):
        port = order[ACTIVE, number]
        index = order[HEAD, port] - 1
        order[HEAD, port] = 0
        _send_chain(scratch, octets, interfaces[rows[port]], order, results, table, index)
    return loop[SENT] < batch[words.FRAMES_OUT]


@kernel(
    "int64(int64[::1], int64[::1], int64[::1], uint8[::1], int64[::1], int64[::1], int64[:,::1], int64[::1], "
    "uint8[::1], uint8[::1], int64[:,::1], uint8[::1], int64[:,::1], int64[:,::1])"
)
def run_once(
    loop: Words,
    batch: Words,
    scratch: Words,
    octets: Octets,
    polled: Words,
    lock: Words,
    interfaces: Words,
    rows: Words,
    received: Octets,
    frames: Octets,
    frame_table: Words,
    results: Octets,
    result_table: Words,
    order: Words,
) -> Any:
    """Serve the sockets until Python is needed; return the `Reason`. Most arrays are those of `Buffers`.

    `octets` are the bytes of `scratch`; `interfaces` has a row of words for each socket, `rows` the row of each port
    or -1; `polled` has the same rows, and after them the descriptor that ends a wait. `lock` are the words of the lock
    that the caller holds.
    """
    begun, requests = udp.microseconds(scratch), lock[REQUESTS]
    now, idle = begun, 0
    while True:
        while True:  # the rest of a batch
            if _send_results(loop, batch, scratch, octets, interfaces, rows, order, results, result_table):
                return _OTHER_PORT
            stopped = run_batch(loop, batch, now)
            if stopped == BATCH_DONE:
                break
            if stopped != SEND_RESULTS:
                return stopped
        now = udp.microseconds(scratch)
        if load_shared_word(address_of(lock) + 8 * WAITERS) != 0 or now - begun > MAX_RUN_US:
            return _YIELD
        room = True
        if loop[PENDING_AT] >= 0:
            room = _frame_pending(loop, batch, interfaces[loop[PENDING_PORT]], received, frames, frame_table)
        if room:
            ready = 0 if idle > 0 and enter_idle(lock) else udp.wait(polled, idle)
            if idle > 0:  # no work: check what ended the wait
                if not leave_idle(lock, requests):
                    return _YIELD
                if ready < 0 or ready == 1 and polled[len(interfaces)] >> 48 != 0:
                    return _WOKEN
                begun = udp.microseconds(scratch)
                now = begun
            for row in range(len(interfaces)):
                while room and polled[row] >> 48 != 0:
                    got = _receive(loop, scratch, interfaces[row], received)
                    if got == _NOTHING:
                        break
                    if got != _OWN:
                        loop[PENDING_PORT] = row
                        room = _frame_pending(loop, batch, interfaces[row], received, frames, frame_table)
        idle = IDLE_MS if batch[words.FRAMES] == 0 else 0
