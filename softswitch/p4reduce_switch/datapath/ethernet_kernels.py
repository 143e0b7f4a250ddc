"""The datapath loop over interfaces: AF_PACKET sockets with PACKET_VNET_HDR.

Each frame that is received or sent follows a `virtio_net_hdr`: flags, GSO type, header length, segment size, start of
the checksummed bytes, and offset of the checksum from there. A frame from this machine, or from a container on it,
arrives with a partial checksum (of the pseudo header), and successive datagrams as one super-frame (GSO). Checksums are
completed; super-frames are segmented if they are UDP over IPv4 without a VLAN tag.
"""

from __future__ import annotations

import errno

from numba.extending import register_jitable

from p4reduce_runtime.datagrams import RUN_BYTES
from p4reduce_runtime.datagrams import kernels as udp
from p4reduce_runtime.datagrams.kernels import address_of, signed
from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import Table, offset_of
from p4reduce_runtime.underlay import ENCAP_BYTES
from p4reduce_switch.datapath import BATCH_FRAMES, FRAME_BYTES, RECEIVE_BYTES, Memory, Octets, Reason
from p4reduce_switch.datapath.addresses import (
    copy_bytes,
    exchange_bytes,
    internet_checksum,
    load_byte,
    load_uint32,
    load_word,
    ones_sum,
    put_checksum,
    put_uint16,
    udp_checksum,
)
from p4reduce_switch.datapath.batch_kernels import (
    BATCH_DONE,
    MAX_RUN_US,
    SEND_RESULTS,
    add_frame,
    dequeue_all,
    end_of_frames,
    enqueue,
    idle_us,
    is_due,
    run_batch,
)
from p4reduce_switch.datapath.ethernet import MAX_SEGMENTS, Interface, Interfaces, PacketIo
from p4reduce_switch.datapath.lock_kernels import enter_idle, has_waiters, leave_idle
from p4reduce_switch.fair_lock import LockState
from p4reduce_switch.program.packet import MAX_PORT

_YIELD, _WOKEN, _OTHER_PORT = int(Reason.YIELD), int(Reason.WOKEN), int(Reason.OTHER_PORT)
_REFUSALS = (errno.EINVAL, errno.EIO, errno.EMSGSIZE, errno.EOPNOTSUPP)
_MESSAGE, _NAME = offset_of(PacketIo, "msg_name"), offset_of(PacketIo, "sll_family")
_VIRTIO, _HEADERS, _VECTOR = (offset_of(PacketIo, name) for name in ("virtio_flags", "headers", "iovec"))
_NAME_BYTES, _VIRTIO_BYTES = 20, 10
_NEEDS_CSUM, _GSO_UDP_L4 = 1, 5
_CHECKSUM_OFFSET = 6
_IP, _UDP = 14, 34
_OUTGOING = 4
_NO_FRAME, _OUTGOING_FRAME = -1, -2
_POLLOUT = 4


@register_jitable
def _pseudo_sum(frame: int, udp_bytes: int) -> int:
    """Return the `ones_sum` of the pseudo header: addresses, protocol and length."""
    return ones_sum(frame + 26, 8) + exchange_bytes(17) + exchange_bytes(udp_bytes)


@register_jitable
def _finish(frames: Octets, at: int, length: int) -> None:
    """Write lengths and checksums into the headers of one datagram of a run."""
    frame = address_of(frames) + at
    udp_bytes = length - _UDP
    put_uint16(frames, at + 16, length - _IP)
    frames[at + 24], frames[at + 25] = 0, 0
    put_checksum(frames, at + 24, internet_checksum(ones_sum(frame + _IP, 20)))
    put_uint16(frames, at + 38, udp_bytes)
    frames[at + 40], frames[at + 41] = 0, 0
    put_checksum(frames, at + 40, udp_checksum(_pseudo_sum(frame, udp_bytes) + ones_sum(frame + _UDP, udp_bytes)))


@register_jitable
def _set_message(table: Table[PacketIo], buffers: int) -> int:
    """Describe a message of the header and `buffers - 1` others in the vector; return the address of the msghdr."""
    io, base = table[0], address_of(table)
    io.iovec[0] = base + _VIRTIO
    io.iovec[1] = _VIRTIO_BYTES
    io.msg_name = 0
    io.msg_namelen = 0
    io.msg_iov = base + _VECTOR
    io.msg_iovlen = buffers
    io.msg_control = 0
    io.msg_controllen = 0
    io.msg_flags = 0
    return base + _MESSAGE


@register_jitable
def _receive(memory: Memory, table: Table[PacketIo], interface: Interface) -> int:
    """Receive one frame or super-frame as pending; return its bytes, _NO_FRAME or _OUTGOING_FRAME."""
    state, io, received = memory.state[0], table[0], memory.received
    io.iovec[2] = address_of(received)
    io.iovec[3] = RECEIVE_BYTES
    message = _set_message(table, 2)
    io.msg_name = address_of(table) + _NAME
    io.msg_namelen = _NAME_BYTES
    io.sll_pkttype = 0
    got: int = udp.recvmsg(interface.descriptor, message, 0)
    if got < _VIRTIO_BYTES:
        return _NO_FRAME
    length = got - _VIRTIO_BYTES
    if io.sll_pkttype == _OUTGOING:
        return _OUTGOING_FRAME
    frame, segment = address_of(received), signed(io.virtio_gso_size)
    start, offset = signed(io.virtio_csum_start), signed(io.virtio_csum_offset)
    state.pending_at = 0
    state.pending_bytes = length
    state.pending_segment = 0
    if io.virtio_gso_type == _GSO_UDP_L4 and 0 < segment < length - ENCAP_BYTES and start == _UDP and _is_udp(frame):
        state.pending_at = ENCAP_BYTES
        state.pending_segment = segment
        interface.gso_seen = 1
    elif io.virtio_flags & _NEEDS_CSUM != 0 and start + offset + 2 <= length:
        total = ones_sum(frame + start, length - start)
        checksum = udp_checksum(total) if offset == _CHECKSUM_OFFSET else internet_checksum(total)
        put_checksum(received, start + offset, checksum)
    return length


@register_jitable
def _is_udp(frame: int) -> bool:
    """Return whether a frame is Ethernet, IPv4 without options, UDP."""
    return load_word(frame + 8) >> 32 & 0xFFFFFF == 0x450008 and load_byte(frame + 23) == 17


@register_jitable
def _frame_pending(memory: Memory, interface: Interface) -> bool:
    """Convert the receive buffer to frames; return whether all of them fit."""
    state, frames, at = memory.state[0], memory.frames, end_of_frames(memory)
    while state.pending_at >= 0:
        if memory.batch[0].frames == BATCH_FRAMES or at + FRAME_BYTES > len(frames):
            return False
        at += -(at + ENCAP_BYTES) % 8
        length, start, segment = state.pending_bytes, address_of(memory.received), state.pending_segment
        if segment == 0:
            copy_bytes(address_of(frames) + at, start, length)
            state.pending_at = -1
        else:
            number = (state.pending_at - ENCAP_BYTES) // segment
            size = min(segment, length - state.pending_at)
            copy_bytes(address_of(frames) + at, start, ENCAP_BYTES)
            copy_bytes(address_of(frames) + at + ENCAP_BYTES, start + state.pending_at, size)
            put_uint16(frames, at + 18, ((load_byte(start + 18) << 8 | load_byte(start + 19)) + number) & 0xFFFF)
            _finish(frames, at, ENCAP_BYTES + size)
            state.pending_at += size
            if state.pending_at >= length:
                state.pending_at = -1
            length = ENCAP_BYTES + size
        add_frame(memory, at, length, interface.port)
        at += length
        interface.frames_in += 1
        interface.bytes_in += length
    return True


@register_jitable
def _can_segment(frame: int, length: int, limit: int) -> bool:
    """Return whether a frame stays the same when the kernel segments a super-frame with it: a valid UDP datagram.

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
def _same_headers(one: int, other: int) -> bool:
    """Return whether two headers differ in lengths, identification and checksums only."""
    return (
        load_word(one) == load_word(other)
        and load_word(one + 8) == load_word(other + 8)
        and load_uint32(one + 20, 0) == load_uint32(other + 20, 0)
        and load_word(one + 26) == load_word(other + 26)
        and load_uint32(one + 34, 0) == load_uint32(other + 34, 0)
    )


@register_jitable
def _send_run(table: Table[PacketIo], interface: Interface, first: int, count: int, segment: int, total: int) -> bool:
    """Send `count` datagrams, whose payloads are in the vector, as one frame; return whether the kernel accepted it."""
    io, headers = table[0], address_of(table) + _HEADERS
    if count == 1:
        io.virtio_flags = 0
        io.virtio_gso_type = 0
        io.virtio_hdr_len = 0
        io.virtio_gso_size = 0
        io.virtio_csum_start = 0
        io.virtio_csum_offset = 0
        io.iovec[2] = first
        io.iovec[3] = ENCAP_BYTES + total
        message = _set_message(table, 2)
    else:
        copy_bytes(headers, first, ENCAP_BYTES)
        put_uint16(io.headers, 16, ENCAP_BYTES - _IP + total)
        put_uint16(io.headers, 24, 0)
        put_checksum(io.headers, 24, internet_checksum(ones_sum(headers + _IP, 20)))
        put_uint16(io.headers, 38, 8 + total)
        put_checksum(io.headers, 40, _pseudo_sum(headers, 8 + total) % 0xFFFF)
        io.virtio_flags = _NEEDS_CSUM
        io.virtio_gso_type = _GSO_UDP_L4
        io.virtio_hdr_len = ENCAP_BYTES
        io.virtio_gso_size = segment
        io.virtio_csum_start = _UDP
        io.virtio_csum_offset = _CHECKSUM_OFFSET
        io.iovec[2] = headers
        io.iovec[3] = ENCAP_BYTES
        message = _set_message(table, 2 + count)
    sent: int = udp.sendmsg(interface.descriptor, message, 0)
    return sent >= 0


@register_jitable
def _send_queue(memory: Memory, table: Table[PacketIo], interface: Interface, index: int) -> None:
    """Send the results of one port, from this one on."""
    results, vector = address_of(memory.results), table[0].iovec
    unsegmented = 0  # frames to send one by one, because the kernel refused their super-frame
    while index >= 0:
        first, length = results + memory.result_table[index].offset, memory.result_table[index].length
        count, total, last, after = 1, length - ENCAP_BYTES, length, memory.queued[index].next
        allowed = interface.gso_allowed + interface.gso_seen >= 2 and interface.gso_allowed > 0
        if unsegmented > 0:
            unsegmented -= 1
        elif allowed and after >= 0 and _can_segment(first, length, interface.max_frame):
            vector[4], vector[5] = first + ENCAP_BYTES, total
            while after >= 0 and count < MAX_SEGMENTS and last == length:
                frame, size = results + memory.result_table[after].offset, memory.result_table[after].length
                on_wire = total + size + count * ENCAP_BYTES
                if size > length or on_wire > RUN_BYTES or not _can_segment(frame, size, length):
                    break
                if not _same_headers(first, frame):
                    break
                at = 4 + 2 * count
                vector[at], vector[at + 1] = frame + ENCAP_BYTES, size - ENCAP_BYTES
                count, total, last, after = count + 1, total + size - ENCAP_BYTES, size, memory.queued[after].next
        if _send_run(table, interface, first, count, length - ENCAP_BYTES, total):
            interface.frames_out += count
            interface.bytes_out += total + count * ENCAP_BYTES
        elif count > 1:
            unsegmented = count
            if udp.errno_now() in _REFUSALS:
                interface.gso_allowed = 0
            continue
        elif interface.waits != 0 and udp.errno_now() == errno.EAGAIN:
            interface.full = 1
        else:
            interface.send_errors += 1
        index = after


@register_jitable
def _send_results(memory: Memory, ports: Interfaces) -> bool:
    """Send the results from `sent` on, up to one whose port is not an interface; return whether there is one."""
    state, count = memory.state[0], memory.batch[0].frames_out
    active = 0
    for index in range(state.sent, count):
        port = memory.result_table[index].port
        if port < 0 or port > MAX_PORT or ports.rows[port] < 0:
            break
        state.sent = index + 1
        active = enqueue(memory, index, port, active)
    for number in range(active):
        port = memory.active[number]
        _send_queue(memory, ports.io, ports.interfaces[ports.rows[port]], dequeue_all(memory, port))
    return state.sent < count


@kernel()
def send_results(memory: Memory, ports: Interfaces) -> bool:
    """Send the results that Python has put there."""
    return _send_results(memory, ports)


@kernel()
def run_once(memory: Memory, ports: Interfaces, lock: Table[LockState]) -> int:
    """Run the loop until Python is needed; return the `Reason`. The caller holds the lock."""
    state, interfaces = memory.state[0], ports.interfaces
    begun, requests = udp.microseconds(), lock[0].requests
    now, idle = begun, False
    while True:
        while True:  # the rest of a batch
            if _send_results(memory, ports):
                return _OTHER_PORT
            stopped = run_batch(memory, now)
            if stopped == BATCH_DONE:
                break
            if stopped != SEND_RESULTS:
                return stopped
        now = udp.microseconds()
        if has_waiters(lock) or now - begun > MAX_RUN_US:
            return _YIELD
        fits = True
        if state.pending_at >= 0:
            fits = _frame_pending(memory, interfaces[state.pending_port])
        if fits:
            ready = 0 if idle and enter_idle(lock) else udp.wait(ports.polled, idle_us(memory, now) if idle else 0)
            if idle:  # no work: check what ended the wait
                if not leave_idle(lock, requests):
                    return _YIELD
                begun = udp.microseconds()
                now = begun
                woken = ready == 1 and ports.polled[len(interfaces)].revents != 0
                if ready < 0 or woken or ready == 0 and is_due(memory, now):
                    return _WOKEN
            has_room = False
            for row in range(len(interfaces)):
                has_room = has_room or ports.polled[row].revents & _POLLOUT != 0
                while fits and ports.polled[row].revents != 0:
                    got = _receive(memory, ports.io, interfaces[row])
                    if got == _NO_FRAME:
                        break
                    if got != _OUTGOING_FRAME:
                        state.pending_port = row
                        fits = _frame_pending(memory, interfaces[row])
            if has_room and memory.batch[0].frames == 0:
                return _WOKEN
        idle = memory.batch[0].frames == 0
