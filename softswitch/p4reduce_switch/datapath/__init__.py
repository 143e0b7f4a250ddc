"""The datapath loop in one native call: wait, receive what has arrived, run the batch, send.

`udp_kernels.py` has the loop over the UDP underlay and `ethernet_kernels.py` the one over interfaces; they run without
the GIL and return to Python for a `Reason`. Their data is here: arrays that the native loop writes during a call and
Python between two calls.

    receive buffer   one super-datagram (GRO): consecutive datagrams of one sender
    frames           datagrams of one or more super-datagrams as Ethernet frames: a batch
    results          the frames that the program made of a batch, until they are sent

The loop does not wait for a batch to fill. It can return at any point, and continues there in the next call.
"""

from __future__ import annotations

import bisect
import enum
import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.datagrams import SHORT_RUN_BYTES, Destination, PollFd, SocketState, destination
from p4reduce_runtime.records import Matrix, Record, Table, Vector, zeros
from p4reduce_switch.program import batch
from p4reduce_switch.program.packet import MAX_PORT

BATCH_FRAMES: Final = 256
RECEIVE_BYTES: Final = 65536 + 64
"""The longest super-datagram with its Ethernet header."""
FRAME_BYTES: Final = 65536 + 64 + 8
"""Space for the longest datagram as a frame, with alignment."""
_FRAMES_BYTES: Final = 512 << 10
_RESULTS_BYTES: Final = 1 << 20
_RESULTS: Final = 2048


class BatchProgram(Protocol):
    """A program with a native function for batches."""

    @property
    def batch(self) -> batch.NativeBatch:
        """The native function."""

    def collect(self, thread: int = 0) -> None:
        """Pass the digests of the last frame to `on_digest`; raise ExecutionError if it met undefined behaviour."""


def batch_program(program: object) -> BatchProgram | None:
    """Return the program if it has a native function for batches."""
    return None if getattr(program, "batch", None) is None else cast(BatchProgram, program)


def started_us(native: batch.NativeBatch, otherwise: int) -> int:
    """Return the origin of the program's time, on the monotonic clock in us; by default `otherwise`."""
    return getattr(native, "started_us", otherwise)


class Reason(enum.IntEnum):
    """The reason for which the native loop returned."""

    YIELD = 0  # for waiters of the lock, or to handle signals
    WOKEN = 1  # the wake descriptor is readable, or a signal arrived
    UNKNOWN_PEER = 2  # the datagram at `pending_at` is from an unknown address
    OTHER_PORT = 3  # the next result goes to a port that is not the loop's: the CPU port, or none
    EVENT = 4  # the last frame run left digests or a failure to collect
    BUFFER_FULL = 5  # the results of one frame may exceed the buffers
    FRAMES = 6  # frames have arrived for Python: see `Buffers.frames`


class LoopState(Record):
    """Progress of a loop between two calls."""

    function: int
    """Address of the program's native function; 0: Python runs the frames."""
    started_us: int
    """The origin of the program's time, on the monotonic clock."""
    sent: int
    """Results that are sent."""
    due_us: int
    """The time on the monotonic clock at which Python is needed at the latest; -1: no such time."""
    event_due: bool
    """Whether the last frame run left digests or a failure."""
    pending_at: int
    """Offset of the next datagram in the receive buffer; -1: none."""
    pending_bytes: int
    pending_segment: int
    pending_ip: int
    pending_port: int
    """The sender; in a loop over interfaces the row of the interface."""


class QueuedResult(Record):
    """A result in the queue of its port."""

    next: int
    """The next result to this port; -1: none."""
    payload_bytes: int


class PortQueue(Record):
    """The results to a port, in order."""

    head: int
    """The index of the first, plus one; 0: the queue is empty."""
    tail: int


class UdpCounters(Record):
    """The counts of the loop over the UDP underlay: see UnderlayCounters."""

    datagrams_in: int
    bytes_in: int
    datagrams_out: int
    bytes_out: int
    not_for_peer: int
    send_buffer_full: int
    send_errors: int


class PeerState(Record):
    """What the loop keeps of a peer, by its port."""

    present: bool
    last_seen_us: int
    """The time on the monotonic clock at which its last datagram arrived."""
    ip_sum: int
    """One's complement sum of its IPv4 header with total length and checksum 0."""


class AddressRow(Record):
    """A row of the hash table of peers."""

    key: int
    """IPv4 address and UDP port."""
    port: int
    """The peer's port; 0: the row is empty."""


Octets = Vector[np.uint8]
Numbers = Vector[np.int64]


class Memory(NamedTuple):
    """The arrays of one loop; `state` and `batch` have one record."""

    state: Table[LoopState]
    batch: Table[batch.Batch]
    received: Octets
    frames: Octets
    frame_table: Table[batch.Frame]
    results: Octets
    result_table: Table[batch.Frame]
    queued: Table[QueuedResult]
    """The queue entry of each result."""
    queues: Table[PortQueue]
    """The queue of each port."""
    active: Numbers
    """The ports whose queues are not empty."""
    addresses: Numbers
    lengths: Numbers
    """The payloads of the results to one peer."""


class Peers(NamedTuple):
    """The peers by port, and by address in a hash table with linear probing."""

    destinations: Table[Destination]
    states: Table[PeerState]
    headers: Matrix[np.uint8]
    """Header templates: Ethernet, IPv4, UDP, padding."""
    addresses: Table[AddressRow]


class UdpSocket(NamedTuple):
    """The socket of the UDP underlay; `io` and `counters` have one record."""

    io: Table[SocketState]
    polled: Table[PollFd]
    """The socket, and the descriptor that ends a wait."""
    counters: Table[UdpCounters]


HEADER_BYTES: Final = 48
"""Bytes of a header template."""

_TABLE_ROWS: Final = 2048
_HASH: Final = 0x9E3779B97F4A7C1
_HASH_SHIFT: Final = 40


class Buffers:
    """The buffers of one loop, and its current batch."""

    def __init__(self) -> None:
        self._state: NDArray[np.void] = zeros(LoopState)
        self._state["pending_at"] = self._state["due_us"] = -1
        self.state: np.void = self._state[0]
        self._batch: NDArray[np.void] = zeros(batch.Batch)
        self._received = np.zeros(RECEIVE_BYTES, np.uint8)
        self._frames = np.zeros(_FRAMES_BYTES, np.uint8)
        self._frame_table: NDArray[np.void] = zeros(batch.Frame, BATCH_FRAMES)
        self._bound: batch.NativeBatch | None = None
        self._allocate(_RESULTS_BYTES, _RESULTS)

    def bind(self, native: batch.NativeBatch | None, installed_us: int, words: NDArray[np.int64] | None = None) -> None:
        """Run the rest of this batch, and all later batches, with this program; with None they are for Python.

        `words` is the program's state, of a thread that has its own.
        """
        if native is self._bound:
            return
        self._bound = native
        self.state["event_due"], self.state["function"] = False, 0
        if native is not None:
            self._batch["program"] = native.new()["program"] if words is None else words.ctypes.data
            self.state["function"], self.state["started_us"] = native.address, started_us(native, installed_us)

    def enlarge(self, native: batch.NativeBatch) -> None:
        """Enlarge the result buffers to the results of one frame; all earlier results are sent."""
        self._allocate(max(_RESULTS_BYTES, 2 * native.max_bytes), max(_RESULTS, 2 * native.copies))

    def _allocate(self, size: int, count: int) -> None:
        self._results = np.zeros(size, np.uint8)
        self._result_table: NDArray[np.void] = zeros(batch.Frame, count)
        of = self._batch
        of["in_bytes"], of["in_frames"] = self._frames.ctypes.data, self._frame_table.ctypes.data
        of["out_bytes"], of["out_size"] = self._results.ctypes.data, size
        of["out_frames"], of["out_capacity"] = self._result_table.ctypes.data, count
        self.memory = Memory(
            state=cast(Table[LoopState], self._state),
            batch=cast(Table[batch.Batch], of),
            received=self._received,
            frames=self._frames,
            frame_table=cast(Table[batch.Frame], self._frame_table),
            results=self._results,
            result_table=cast(Table[batch.Frame], self._result_table),
            queued=zeros(QueuedResult, count),
            queues=zeros(PortQueue, MAX_PORT + 1),
            active=np.zeros(MAX_PORT + 1, np.int64),
            addresses=np.zeros(count, np.int64),
            lengths=np.zeros(count, np.int64),
        )

    def pending(self, size: int) -> bytes:
        """Return the first `size` bytes of the receive buffer."""
        return self._received[:size].tobytes()

    def result(self) -> tuple[int, bytes]:
        """Return port and frame of the next result; the loop continues after it."""
        index = int(self.state["sent"])
        self.state["sent"] += 1
        return self._cut(self._results, self._result_table, index)

    def clear_event(self) -> bool:
        """Return whether an event of the last frame run is still to be collected, and clear it."""
        due = bool(self.state["event_due"])
        self.state["event_due"] = False
        return due

    def last_port(self) -> int:
        """Return the ingress port of the last frame run."""
        return int(self._frame_table["port"][self._batch["frames_run"][0] - 1])

    def frames(self) -> list[tuple[int, bytes]]:
        """Return port and frame of all frames that were not run; the loop continues after them."""
        first, end = int(self._batch["frames_run"][0]), int(self._batch["frames"][0])
        self._batch["frames_run"] = end
        return [self._cut(self._frames, self._frame_table, index) for index in range(first, end)]

    def set_results(self, frames: Sequence[tuple[int, bytes]]) -> int:
        """Take the first of these (port, frame) that find room as results; return how many."""
        ends = list(itertools.accumulate(len(frame) for _, frame in frames))
        count = min(bisect.bisect_right(ends, len(self._results)), len(self._result_table))
        data = b"".join(frame for _, frame in frames[:count])
        self._results[: len(data)] = np.frombuffer(data, np.uint8)
        rows = zip(ends, frames[:count], strict=False)
        self._result_table[:count] = [(end - len(frame), len(frame), port) for end, (port, frame) in rows]
        self._batch["frames_out"], self.state["sent"] = count, 0
        return count

    @staticmethod
    def _cut(store: NDArray[np.uint8], table: NDArray[np.void], index: int) -> tuple[int, bytes]:
        start, length, port = table[index].tolist()
        return port, store[start : start + length].tobytes()


class PeerTable:
    """The peers for the native loop."""

    def __init__(self, plain: bool) -> None:
        """`plain`: send without GSO."""
        self._plain = plain
        self._destinations: NDArray[np.void] = zeros(Destination, MAX_PORT + 1)
        self._states: NDArray[np.void] = zeros(PeerState, MAX_PORT + 1)
        self._headers = np.zeros((MAX_PORT + 1, HEADER_BYTES), np.uint8)
        self._addresses: NDArray[np.void] = zeros(AddressRow, _TABLE_ROWS)
        self.peers = Peers(
            cast(Table[Destination], self._destinations),
            cast(Table[PeerState], self._states),
            self._headers,
            cast(Table[AddressRow], self._addresses),
        )

    def add(self, port: int, ip: int, udp_port: int, header: bytes, ip_sum: int) -> np.void:
        """Add a peer; return its PeerState."""
        self._destinations[port] = destination(ip, udp_port, self._plain, SHORT_RUN_BYTES)[0]
        self._states[port] = True, 0, ip_sum
        self._headers[port, : len(header)] = np.frombuffer(header, np.uint8)
        self._insert(port)
        state: np.void = self._states[port]
        return state

    def remove(self, port: int) -> None:
        """Remove a peer."""
        self._states["present"][port] = False
        self._addresses[:] = 0
        for left in np.flatnonzero(self._states["present"]).tolist():
            self._insert(left)

    def _insert(self, port: int) -> None:
        to = self._destinations[port]
        key = int(to["ip"]) << 16 | int(to["port"])
        row = hashed(key)
        while self._addresses["port"][row]:
            row = (row + 1) % _TABLE_ROWS
        self._addresses[row] = key, port


def hashed(key: int) -> int:
    """Return the first row of the hash table to probe for a key; compiled code calls it too."""
    return (key * _HASH >> _HASH_SHIFT) & _TABLE_ROWS - 1
