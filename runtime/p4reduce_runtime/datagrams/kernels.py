"""libc's poll, recvmsg and sendmsg, called from compiled code, for Linux on 64-bit little-endian processors."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from p4reduce_runtime.datagrams import (
    LONG_RUNS_REMEMBERED,
    MAX_SEGMENTS,
    RECEIVE_BYTES,
    RUN_BYTES,
    SHORT_RUN_BYTES,
    Destination,
    PollFd,
    SocketState,
)
from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import Table, Vector, offset_of
from p4reduce_runtime.underlay import ENCAP_BYTES

_MESSAGE = offset_of(SocketState, "msg_name")
_NAME = offset_of(SocketState, "sin_family")
_CONTROL = offset_of(SocketState, "cmsg_len")
_VECTOR = offset_of(SocketState, "iovec")
_NAME_BYTES = 16
_CONTROL_BYTES = 64

_FAMILY = int(socket.AF_INET)
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_EAGAIN, _EIO, _EINVAL = errno.EAGAIN, errno.EIO, errno.EINVAL
_EMSGSIZE, _EOPNOTSUPP = errno.EMSGSIZE, errno.EOPNOTSUPP
_CLOCK_MONOTONIC = 1
_POLLS = 20
"""Polls of `wait` before it sleeps; each takes about a microsecond."""

types: Any = numba.types
signed: Any = np.int64
"""Makes an int64 of a number of another type: numba computes uint64 with int64 as float64."""
_errno_location = types.ExternalFunction("__errno_location", types.uintp())
yield_processor = types.ExternalFunction("sched_yield", types.int32())
recvmsg = types.ExternalFunction("recvmsg", types.int64(types.int32, types.uintp, types.int32))
sendmsg = types.ExternalFunction("sendmsg", types.int64(types.int32, types.uintp, types.int32))
_I32, _I64 = ir.IntType(32), ir.IntType(64)


def _load_int(_typing: object, address: int) -> object:
    """Read the C int at an address."""

    def generate(_: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> ir.Value:
        return builder.load(builder.inttoptr(arguments[0], _I32.as_pointer()))

    return types.int32(types.uintp), generate


def _wait_for(_typing: object, address: int, count: int, timeout_us: int) -> object:
    """Call ppoll for some struct pollfd; return what it returns."""

    def generate(_: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> ir.Value:
        timespec: ir.Value = cgutils.alloca_once(builder, _I64, size=2)
        builder.store(builder.sdiv(arguments[2], _I64(1_000_000)), timespec)
        nanoseconds = builder.mul(builder.srem(arguments[2], _I64(1_000_000)), _I64(1000))
        builder.store(nanoseconds, builder.gep(timespec, [_I64(1)]))
        ppoll = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_I32, [_I64, _I64, _I64.as_pointer(), _I64]), "ppoll"
        )
        return builder.call(ppoll, [arguments[0], arguments[1], timespec, _I64(0)])

    return types.int32(types.int64, types.int64, types.int64), generate


def _monotonic_time(_typing: object) -> object:
    """Return clock_gettime(CLOCK_MONOTONIC) in microseconds."""

    def generate(_: object, builder: ir.IRBuilder, _signature: object, _arguments: Sequence[ir.Value]) -> ir.Value:
        timespec: ir.Value = cgutils.alloca_once(builder, _I64, size=2)
        clock_gettime = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_I32, [_I32, _I64.as_pointer()]), "clock_gettime"
        )
        builder.call(clock_gettime, [_I32(_CLOCK_MONOTONIC), timespec])
        seconds = builder.load(timespec)
        nanoseconds = builder.load(builder.gep(timespec, [_I64(1)]))
        return builder.add(builder.mul(seconds, _I64(1_000_000)), builder.sdiv(nanoseconds, _I64(1000)))

    return types.int64(), generate


_int_at: Callable[..., int] = intrinsic(_load_int)
_clock: Callable[..., int] = intrinsic(_monotonic_time)
_ppoll: Callable[..., int] = intrinsic(_wait_for)


@kernel()
def errno_now() -> int:
    """Return errno of this thread."""
    number: int = _int_at(_errno_location())
    return number


@kernel()
def microseconds() -> int:
    """Return the time of the monotonic clock."""
    now: int = _clock()
    return now


@register_jitable
def address_of(array: object) -> int:
    """Return the address of an array's data."""
    pointed: Any = array
    address: int = signed(pointed.ctypes.data)
    return address


@register_jitable
def _swapped16(number: int) -> int:
    return number >> 8 | (number & 0xFF) << 8


@register_jitable
def _swapped32(number: int) -> int:
    return number >> 24 | (number >> 8 & 0xFF00) | (number & 0xFF00) << 8 | (number & 0xFF) << 24


@kernel()
def sleep(polled: Table[PollFd], timeout_us: int) -> int:
    """Sleep until one of some descriptors is ready; return how many are, or -errno after a signal.

    Sets `revents` of each.
    """
    ready: int = _ppoll(address_of(polled), len(polled), timeout_us)
    return ready if ready >= 0 else -errno_now()


@kernel()
def wait(polled: Table[PollFd], timeout_us: int) -> int:
    """Do as `sleep`, but before poll some times, and yield the processor between.

    Waking up takes tens of microseconds on a virtual machine, and frames arrive sooner.
    """
    for _ in range(_POLLS):
        ready = sleep(polled, 0)
        if ready != 0:
            return ready
        yield_processor()
    return sleep(polled, timeout_us)


@kernel(separate=True)
def receive(io: Table[SocketState], ring: Vector[np.uint8], start: int) -> int:
    """Receive a datagram, or a run of them, into `ring` from `start` on, where RECEIVE_BYTES are free.

    Return its bytes and set `segment`, `sender_ip` and `sender_port`; -errno when there is nothing, or the socket has
    an error to report. A datagram of no bytes is one too.
    """
    state, pointer = io[0], address_of(io)
    state.iovec[0] = address_of(ring) + start
    state.iovec[1] = RECEIVE_BYTES
    state.msg_name = pointer + _NAME
    state.msg_namelen = _NAME_BYTES
    state.msg_iov = pointer + _VECTOR
    state.msg_iovlen = 1
    state.msg_control = pointer + _CONTROL
    state.msg_controllen = _CONTROL_BYTES
    state.msg_flags = 0
    state.sin_port = 0
    state.sin_addr = 0
    got: int = recvmsg(state.descriptor, pointer + _MESSAGE, 0)
    if got < 0:
        state.error = errno_now()
        return -state.error
    state.sender_port = _swapped16(state.sin_port)
    state.sender_ip = _swapped32(state.sin_addr)
    state.segment = got
    if state.msg_controllen >= 20 and state.cmsg_level == _SOL_UDP and state.cmsg_type == _UDP_GRO:
        segment = state.cmsg_data[0]
        if 0 < segment < got:
            state.segment = segment
    return got


@kernel()
def follow(state: SocketState, path: Destination, got: int) -> None:
    """Let runs to a sender be as long as its own: `receive` has just returned `got` bytes from there.

    They are long after a long one has arrived whole, and short after LONG_RUNS_REMEMBERED datagrams without.
    """
    count = max(1, (got - 1) // max(1, state.segment) + 1)
    if got + count * ENCAP_BYTES > SHORT_RUN_BYTES:
        path.run_bytes = RUN_BYTES
        path.since_long = 0
    elif path.run_bytes > SHORT_RUN_BYTES:
        path.since_long += count
        if path.since_long > LONG_RUNS_REMEMBERED:
            path.run_bytes = SHORT_RUN_BYTES


@kernel(separate=True)
def send(
    io: Table[SocketState],
    to: Destination,
    addresses: Vector[np.int64],
    lengths: Vector[np.int64],
    first: int,
    end: int,
) -> int:
    """Send datagrams first..end-1, given by the addresses of their bytes and their lengths, to one destination.

    Those in a row that are equally long go as one super-datagram; the last of it may be shorter. Where the path refuses
    that, `plain` is set, and each goes by itself. Return `end`, or the first that was not tried because the socket's
    buffer is full: `error` is EAGAIN then. Any other failure is counted in `lost` and `lost_bytes` (`error` is that of
    the last one), and the next are tried.
    """
    state, pointer = io[0], address_of(io)
    state.sin_family = _FAMILY
    state.sin_port = _swapped16(to.port)
    state.sin_addr = _swapped32(to.ip)
    state.sin_zero = 0
    state.msg_name = pointer + _NAME if to.ip != 0 else 0
    state.msg_namelen = _NAME_BYTES if to.ip != 0 else 0
    state.msg_iov = pointer + _VECTOR
    state.msg_flags = 0
    state.cmsg_len = 18
    state.cmsg_level = _SOL_UDP
    state.cmsg_type = _UDP_SEGMENT
    alone_until, refused = 0, 0  # datagrams before this one go by themselves, because their run failed for that reason
    while first < end:
        segment = lengths[first]
        count, total, last, pieces = 0, 0, 0, 0
        while first + count < end and count < MAX_SEGMENTS:
            length = lengths[first + count]
            on_wire = total + length + (count + 1) * ENCAP_BYTES
            if length > segment or count > 0 and (length == 0 or last < segment or on_wire > to.run_bytes):
                break
            if count > 0 and addresses[first + count] == addresses[first + count - 1] + last:
                state.iovec[2 * pieces - 1] += length  # it lies behind the one before
            else:
                state.iovec[2 * pieces] = addresses[first + count]
                state.iovec[2 * pieces + 1] = length
                pieces += 1
            last, total, count = length, total + length, count + 1
            if to.plain != 0 or first < alone_until:
                break
        state.msg_iovlen = pieces
        state.msg_control = pointer + _CONTROL if count > 1 else 0
        state.msg_controllen = 24 if count > 1 else 0
        state.cmsg_data[0] = segment
        if sendmsg(state.descriptor, pointer + _MESSAGE, 0) < 0:
            state.error = errno_now()
            if state.error == _EAGAIN:
                return first
            if count > 1:
                alone_until, refused = first + count, state.error
                continue
            state.lost += 1
            state.lost_bytes += total
        elif first < alone_until and refused in (_EIO, _EINVAL, _EMSGSIZE, _EOPNOTSUPP):
            to.plain = 1  # single datagrams pass and runs do not: the next run would be refused too
        first += count
    return end
