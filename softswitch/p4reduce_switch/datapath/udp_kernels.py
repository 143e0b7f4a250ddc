"""The datapath loop over the UDP underlay."""

from __future__ import annotations

from collections.abc import Callable

from numba.extending import register_jitable

from p4reduce_runtime.datagrams import Destination
from p4reduce_runtime.datagrams import kernels as udp
from p4reduce_runtime.datagrams.kernels import address_of
from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import Table
from p4reduce_runtime.underlay import ENCAP_BYTES, HELLO_BYTES, HELLO_START
from p4reduce_switch.datapath import (
    BATCH_FRAMES,
    FRAME_BYTES,
    AddressRow,
    Memory,
    Octets,
    Peers,
    PeerState,
    Reason,
    UdpSocket,
    hashed,
)
from p4reduce_switch.datapath.addresses import copy_bytes, internet_checksum, put_uint16
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
from p4reduce_switch.datapath.lock_kernels import enter_helper, enter_idle, has_waiters, leave_helper, leave_idle
from p4reduce_switch.fair_lock import LockState
from p4reduce_switch.program.packet import MAX_PORT

_YIELD, _WOKEN, _UNKNOWN_PEER, _OTHER_PORT = (
    int(Reason.YIELD),
    int(Reason.WOKEN),
    int(Reason.UNKNOWN_PEER),
    int(Reason.OTHER_PORT),
)
_IP_BYTES = 20
_CLOSED_US = 50
"""Microseconds that a helper sleeps before it looks again whether it may run frames."""
_hashed: Callable[[int], int] = register_jitable(hashed)


@register_jitable
def _wrap(peer: PeerState, header: int, payload: int, length: int, frames: Octets, at: int) -> None:
    """Write a payload with its headers at `frames[at:]`; `header` and `payload` are addresses.

    There is no UDP checksum (0, RFC 768): the kernel has compared the datagram's own.
    """
    base = address_of(frames) + at
    copy_bytes(base, header, ENCAP_BYTES)
    copy_bytes(base + ENCAP_BYTES, payload, length)
    udp_bytes = 8 + length
    put_uint16(frames, at + 16, _IP_BYTES + udp_bytes)
    put_uint16(frames, at + 24, internet_checksum(peer.ip_sum + _IP_BYTES + udp_bytes))
    put_uint16(frames, at + 38, udp_bytes)


@register_jitable
def _payload_bytes(to: Destination, results: Octets, at: int, length: int) -> int:
    """Return the payload bytes of a frame to this peer (IPv4 without options, UDP, complete); -1 of any other.

    A HELLO goes to the peer whatever its destination is: it shows the controller where an uplink leads.
    """
    if length < ENCAP_BYTES or results[at + 12] != 8 or results[at + 13] != 0 or results[at + 14] != 0x45:
        return -1
    size = (int(results[at + 38]) << 8 | int(results[at + 39])) - 8
    if results[at + 23] != 17 or size < 0 or ENCAP_BYTES + size > length:
        return -1
    ip = int(results[at + 30]) << 24 | int(results[at + 31]) << 16 | int(results[at + 32]) << 8 | int(results[at + 33])
    port = int(results[at + 36]) << 8 | int(results[at + 37])
    hello = size == HELLO_BYTES and results[at + ENCAP_BYTES] == HELLO_START
    return size if hello or (ip == to.ip and port == to.port) else -1


@register_jitable
def _send_results(memory: Memory, peers: Peers, socket: UdpSocket) -> bool:
    """Send the results from `sent` on, up to one whose port is not a peer's; return whether there is such a result.

    Results to one peer keep their order, and use GSO.
    """
    state, count, counters, io = memory.state[0], memory.batch[0].frames_out, socket.counters[0], socket.io[0]
    active = 0
    for index in range(state.sent, count):
        result = memory.result_table[index]
        port = result.port
        if port < 1 or port > MAX_PORT or not peers.states[port].present:
            break
        state.sent = index + 1
        size = _payload_bytes(peers.destinations[port], memory.results, result.offset, result.length)
        if size < 0:
            counters.not_for_peer += 1
            continue
        memory.queued[index].payload_bytes = size
        active = enqueue(memory, index, port, active)
    for number in range(active):
        port = memory.active[number]
        index, queued, total = dequeue_all(memory, port), 0, 0
        while index >= 0:
            memory.addresses[queued] = address_of(memory.results) + memory.result_table[index].offset + ENCAP_BYTES
            memory.lengths[queued] = memory.queued[index].payload_bytes
            index, queued = memory.queued[index].next, queued + 1
        io.lost = 0
        io.lost_bytes = 0
        tried = udp.send(socket.io, peers.destinations[port], memory.addresses, memory.lengths, 0, queued)
        for place in range(tried):
            total += memory.lengths[place]
        counters.datagrams_out += tried - io.lost
        counters.bytes_out += total - io.lost_bytes
        counters.send_errors += io.lost
        counters.send_buffer_full += queued - tried
    return state.sent < count


@register_jitable
def _port_of(ip: int, udp_port: int, table: Table[AddressRow]) -> int:
    """Return the port of a peer; 0 for an unknown address."""
    key = ip << 16 | udp_port
    row = _hashed(key)
    while table[row].port != 0 and table[row].key != key:
        row = (row + 1) & (len(table) - 1)
    return table[row].port


@register_jitable
def _frame_pending(memory: Memory, socket: UdpSocket, peers: Peers, port: int) -> bool:
    """Turn the datagrams in the receive buffer into frames; return whether all of them found space."""
    state, counters, at = memory.state[0], socket.counters[0], end_of_frames(memory)
    header = address_of(peers.headers) + peers.headers.shape[1] * port
    while state.pending_at >= 0:
        if memory.batch[0].frames == BATCH_FRAMES or at + FRAME_BYTES > len(memory.frames):
            return False
        length = min(state.pending_segment, state.pending_bytes - state.pending_at)
        at += -(at + ENCAP_BYTES) % 8
        _wrap(peers.states[port], header, address_of(memory.received) + state.pending_at, length, memory.frames, at)
        add_frame(memory, at, ENCAP_BYTES + length, port)
        at += ENCAP_BYTES + length
        counters.datagrams_in += 1
        counters.bytes_in += length
        state.pending_at += length
        if state.pending_at >= state.pending_bytes:
            state.pending_at = -1
    return True


@register_jitable
def _receive_all(memory: Memory, socket: UdpSocket, peers: Peers, now: int) -> None:
    """Receive until nothing is left, the frames are full, or a datagram of an unknown address is pending."""
    state, io = memory.state[0], socket.io[0]
    while True:
        if state.pending_at < 0:
            got = udp.receive(socket.io, memory.received, 0)
            if got < 0:  # nothing, or an ICMP error for an earlier datagram
                return
            state.pending_at = 0
            state.pending_bytes = got
            state.pending_segment = io.segment
            state.pending_ip = io.sender_ip
            state.pending_port = io.sender_port
        port = _port_of(state.pending_ip, state.pending_port, peers.addresses)
        if port == 0:
            return
        if state.pending_at == 0:
            if state.pending_bytes == 0:  # it receives damaged runs
                peers.destinations[port].plain = 1
            udp.follow(io, peers.destinations[port], state.pending_bytes)
        peers.states[port].last_seen_us = now
        if not _frame_pending(memory, socket, peers, port):
            return


@kernel()
def send_results(memory: Memory, peers: Peers, socket: UdpSocket) -> bool:
    """Send the results that Python has put there."""
    return _send_results(memory, peers, socket)


@register_jitable
def _run_rest(memory: Memory, peers: Peers, socket: UdpSocket, now: int) -> int:
    """Run and send the rest of a batch; return a `Reason`, or BATCH_DONE."""
    while not _send_results(memory, peers, socket):
        stopped = run_batch(memory, now)
        if stopped != SEND_RESULTS:
            return stopped
    return _OTHER_PORT


@kernel()
def help_once(memory: Memory, peers: Peers, socket: UdpSocket, lock: Table[LockState], helper: int) -> int:
    """Serve a helper's socket, while the lock is not closed, until Python is needed; return the `Reason`."""
    now = udp.microseconds()
    while True:
        if not enter_helper(lock, helper):
            udp.yield_processor()
            if udp.sleep(socket.polled, _CLOSED_US) < 0 or socket.polled[1].revents != 0:
                return _WOKEN
            continue
        stopped = _run_rest(memory, peers, socket, now)
        now = udp.microseconds()
        if stopped == BATCH_DONE:
            _receive_all(memory, socket, peers, now)
        leave_helper(lock, helper)
        if stopped != BATCH_DONE:
            return stopped
        if memory.batch[0].frames == 0:
            if memory.state[0].pending_at >= 0:
                return _UNKNOWN_PEER
            if udp.wait(socket.polled, idle_us(memory, now)) < 0 or socket.polled[1].revents != 0:
                return _WOKEN
            now = udp.microseconds()


@kernel()
def run_once(memory: Memory, peers: Peers, socket: UdpSocket, lock: Table[LockState]) -> int:
    """Serve the socket until Python is needed; return the `Reason`. The caller holds the lock."""
    begun, requests = udp.microseconds(), lock[0].requests
    now = begun
    while True:
        stopped = _run_rest(memory, peers, socket, now)
        if stopped != BATCH_DONE:
            return stopped
        now = udp.microseconds()
        if has_waiters(lock) or now - begun > MAX_RUN_US:
            return _YIELD
        _receive_all(memory, socket, peers, now)
        if memory.batch[0].frames == 0:
            if memory.state[0].pending_at >= 0:
                return _UNKNOWN_PEER
            ready = 0 if enter_idle(lock) else udp.wait(socket.polled, idle_us(memory, now))
            if not leave_idle(lock, requests):
                return _YIELD
            begun = udp.microseconds()
            now = begun
            if ready < 0 or socket.polled[1].revents != 0 or ready == 0 and is_due(memory, now):
                return _WOKEN
