"""libc's poll, recvmsg and sendmsg, called from compiled code, for Linux on 64-bit little-endian processors.

The structures are laid out in words of 64 bits:

    msghdr        name, its length, iovec, how many, control, its length, flags
    iovec         address, bytes
    sockaddr_in   family | port << 16 | address << 32, both in network order; 0
    cmsghdr       length, level | type << 32, data
    pollfd        descriptor | events << 32 | revents << 48
"""

from __future__ import annotations

import errno
import socket
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from p4reduce_runtime.datagrams import (
    DESCRIPTOR,
    ENCAP_BYTES,
    ERRNO,
    LONG_RUNS_REMEMBERED,
    LOST,
    LOST_BYTES,
    MAX_SEGMENTS,
    RECEIVE_BYTES,
    RUN_BYTES,
    SCRATCH,
    SEGMENT,
    SENDER_IP,
    SENDER_PORT,
    SHORT_RUN_BYTES,
    SINCE_LONG,
    TO_IP,
    TO_PLAIN,
    TO_PORT,
    TO_RUN_BYTES,
)
from p4reduce_runtime.kernels import kernel

_MESSAGE = SCRATCH
_NAME = _MESSAGE + 7
_CONTROL = _NAME + 2
_VECTOR = _CONTROL + 8

_FAMILY = int(socket.AF_INET)
_SEGMENT_SIZE = 17 | 103 << 32  # SOL_UDP, UDP_SEGMENT
_GRO = 17 | 104 << 32  # SOL_UDP, UDP_GRO
_EAGAIN, _EIO, _EINVAL = errno.EAGAIN, errno.EIO, errno.EINVAL
_EMSGSIZE, _EOPNOTSUPP = errno.EMSGSIZE, errno.EOPNOTSUPP
_CLOCK_MONOTONIC = 1

types: Any = numba.types
_errno_location = types.ExternalFunction("__errno_location", types.uintp())
_LOOKS = 20
"""Before `wait` sleeps; each takes about a microsecond."""
_sched_yield = types.ExternalFunction("sched_yield", types.int32())
_poll = types.ExternalFunction("poll", types.int32(types.uintp, types.uint64, types.int32))
recvmsg = types.ExternalFunction("recvmsg", types.int64(types.int32, types.uintp, types.int32))
sendmsg = types.ExternalFunction("sendmsg", types.int64(types.int32, types.uintp, types.int32))
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))


def _load_int(_typing: Any, address: Any) -> Any:
    """Read the C int at an address."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer()))

    return types.int32(types.uintp), generate


_int_at: Any = intrinsic(_load_int)


@kernel("int64()")
def errno_now() -> Any:
    """Return why the last system call of this thread failed."""
    return _int_at(_errno_location())


@kernel("int64(int64[::1])")
def microseconds(io: Any) -> Any:
    """Return the time of the monotonic clock."""
    _clock_gettime(_CLOCK_MONOTONIC, np.int64(io.ctypes.data) + 8 * _CONTROL)
    return io[_CONTROL] * 1_000_000 + io[_CONTROL + 1] // 1000


@kernel("int64(int64[::1], int64)")
def wait(polled: Any, timeout_ms: int) -> Any:
    """Wait for one of some descriptors (`datagrams.polled`); return how many are ready, -errno after a signal.

    The events of each are in the uppermost 16 bits of its word. Before it sleeps it looks some times, and gives way to
    other processes between: to be woken takes tens of microseconds on a virtual machine, and frames come sooner.
    """
    for index in range(len(polled)):
        polled[index] &= 0xFFFFFFFFFFFF
    for _ in range(_LOOKS):
        ready = _poll(polled.ctypes.data, len(polled), 0)
        if ready != 0:
            return ready if ready >= 0 else -errno_now()
        _sched_yield()
    ready = _poll(polled.ctypes.data, len(polled), timeout_ms)
    return ready if ready >= 0 else -errno_now()


@kernel("int64(int64[::1], uint8[::1], int64)")
def receive(io: Any, ring: Any, start: int) -> Any:
    """Receive a datagram, or a run of them, into `ring` from `start` on, where RECEIVE_BYTES are free.

    Return its bytes and set SEGMENT, SENDER_IP and SENDER_PORT; -errno when there is nothing, or the socket has an
    error to report. A datagram of no bytes is one too.
    """
    base = np.int64(io.ctypes.data)
    io[_VECTOR], io[_VECTOR + 1] = np.int64(ring.ctypes.data) + start, RECEIVE_BYTES
    io[_MESSAGE], io[_MESSAGE + 1] = base + 8 * _NAME, 16
    io[_MESSAGE + 2], io[_MESSAGE + 3] = base + 8 * _VECTOR, 1
    io[_MESSAGE + 4], io[_MESSAGE + 5], io[_MESSAGE + 6] = base + 8 * _CONTROL, 64, 0
    io[_NAME] = 0
    got = recvmsg(io[DESCRIPTOR], base + 8 * _MESSAGE, 0)
    if got < 0:
        io[ERRNO] = errno_now()
        return -io[ERRNO]
    name = io[_NAME]
    port, ip = name >> 16 & 0xFFFF, name >> 32 & 0xFFFFFFFF
    io[SENDER_PORT] = port >> 8 | (port & 0xFF) << 8
    io[SENDER_IP] = ip >> 24 | (ip >> 8 & 0xFF00) | (ip & 0xFF00) << 8 | (ip & 0xFF) << 24
    io[SEGMENT] = got
    if io[_MESSAGE + 5] >= 20 and io[_CONTROL + 1] == _GRO and 0 < io[_CONTROL + 2] & 0xFFFFFFFF < got:
        io[SEGMENT] = io[_CONTROL + 2] & 0xFFFFFFFF
    return got


@kernel("void(int64[::1], int64[::1], int64)")
def follow(io: Any, path: Any, got: int) -> None:
    """Let runs to a sender be as long as its own: `receive` has just returned `got` bytes from there.

    They are long after a long one has arrived whole, and short after LONG_RUNS_REMEMBERED datagrams without.
    """
    count = max(1, (got - 1) // max(1, io[SEGMENT]) + 1)
    if got + count * ENCAP_BYTES > SHORT_RUN_BYTES:
        path[TO_RUN_BYTES], path[SINCE_LONG] = RUN_BYTES, 0
    elif path[TO_RUN_BYTES] > SHORT_RUN_BYTES:
        path[SINCE_LONG] += count
        if path[SINCE_LONG] > LONG_RUNS_REMEMBERED:
            path[TO_RUN_BYTES] = SHORT_RUN_BYTES


@kernel("int64(int64[::1], int64[::1], int64[::1], int64[::1], int64, int64)")
def send(io: Any, to: Any, addresses: Any, lengths: Any, first: int, end: int) -> Any:
    """Send datagrams first..end-1, given by the addresses of their bytes and their lengths, to one destination.

    Those in a row that are equally long go as one super-datagram; the last of it may be shorter. Where the way there
    refuses that, TO_PLAIN is set, and each goes by itself. Return `end`, or the first that was not tried because the
    socket's buffer is full: ERRNO is EAGAIN then. Any other failure is counted in LOST and LOST_BYTES (ERRNO says the
    last one's cause), and the next are tried.
    """
    base = np.int64(io.ctypes.data)
    port, ip = to[TO_PORT], to[TO_IP]
    port = port >> 8 | (port & 0xFF) << 8
    ip = ip >> 24 | (ip >> 8 & 0xFF00) | (ip & 0xFF00) << 8 | (ip & 0xFF) << 24
    io[_NAME], io[_NAME + 1] = _FAMILY | port << 16 | ip << 32, 0
    io[_MESSAGE], io[_MESSAGE + 1] = (base + 8 * _NAME, 16) if ip != 0 else (0, 0)
    io[_MESSAGE + 2], io[_MESSAGE + 6] = base + 8 * _VECTOR, 0
    alone_until, refused = 0, 0  # datagrams before this one go by themselves, because their run failed for that reason
    while first < end:
        segment = lengths[first]
        count, total, last = 0, 0, 0
        while first + count < end and count < MAX_SEGMENTS:
            length = lengths[first + count]
            on_wire = total + length + (count + 1) * ENCAP_BYTES
            if length > segment or count > 0 and (length == 0 or last < segment or on_wire > to[TO_RUN_BYTES]):
                break
            io[_VECTOR + 2 * count], io[_VECTOR + 2 * count + 1] = addresses[first + count], length
            last, total, count = length, total + length, count + 1
            if to[TO_PLAIN] != 0 or first < alone_until:
                break
        io[_MESSAGE + 3] = count
        io[_MESSAGE + 4], io[_MESSAGE + 5] = (base + 8 * _CONTROL, 24) if count > 1 else (0, 0)
        io[_CONTROL], io[_CONTROL + 1], io[_CONTROL + 2] = 18, _SEGMENT_SIZE, segment
        if sendmsg(io[DESCRIPTOR], base + 8 * _MESSAGE, 0) < 0:
            io[ERRNO] = errno_now()
            if io[ERRNO] == _EAGAIN:
                return first
            if count > 1:
                alone_until, refused = first + count, io[ERRNO]
                continue
            io[LOST] += 1
            io[LOST_BYTES] += total
        elif first < alone_until and refused in (_EIO, _EINVAL, _EMSGSIZE, _EOPNOTSUPP):
            to[TO_PLAIN] = 1  # what goes alone, and not in a run, would be refused next time too
        first += count
    return end
