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

import enum
from typing import Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.datagrams import SHORT_RUN_BYTES, TO_WORDS, destination
from p4reduce_switch.program import batch

MAX_PORT: Final = 511
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

    def collect(self) -> None:
        """Pass the digests of the last frame to `on_digest`; raise ExecutionError if it met undefined behaviour."""


def batch_program(program: object) -> BatchProgram | None:
    """Return the program if it has a native function for batches."""
    return None if getattr(program, "batch", None) is None else cast(BatchProgram, program)


def started_us(native: batch.NativeBatch, otherwise: int) -> int:
    """Return the origin of the program's time, on the monotonic clock in us; `otherwise` if it has none of its own."""
    return getattr(native, "started_us", otherwise)


class Reason(enum.IntEnum):
    """Why the native loop returned."""

    YIELD = 0  # for waiters of the lock, or to handle signals
    WOKEN = 1  # the wake-up descriptor is readable, or a signal arrived
    UNKNOWN_PEER = 2  # the datagram at PENDING_AT is from an unknown address
    OTHER_PORT = 3  # the next result goes to a port that is not the loop's: the CPU port, or none
    EVENT = 4  # the last frame run left digests or a failure to collect
    NO_ROOM = 5  # the results of one frame may exceed the buffers


# words of the loop's state
FUNCTION: Final = 0
"""Address of the program's native function."""
STARTED_US: Final = 1
"""The origin of the program's time, on the monotonic clock."""
SENT: Final = 2
"""Results that are sent."""
EVENT_DUE: Final = 3
PENDING_AT: Final = 4
"""Offset of the next datagram in the receive buffer; -1: none."""
PENDING_BYTES: Final = 5
PENDING_SEGMENT: Final = 6
PENDING_IP: Final = 7
PENDING_PORT: Final = 8
# and its counters: see UnderlayCounters
COUNTERS: Final = (
    "datagrams_in",
    "bytes_in",
    "datagrams_out",
    "bytes_out",
    "not_for_peer",
    "send_buffer_full",
    "send_errors",
)
DATAGRAMS_IN, BYTES_IN, DATAGRAMS_OUT, BYTES_OUT, NOT_FOR_PEER, BUFFER_FULL, SEND_ERRORS = range(16, 16 + len(COUNTERS))
LOOP_WORDS: Final = 16 + len(COUNTERS)

# words of a peer, after those of a `datagrams` destination
PEER_PRESENT: Final = TO_WORDS
PEER_LAST_SEEN_US: Final = TO_WORDS + 1
"""When its last datagram arrived, on the monotonic clock."""
PEER_IP_SUM: Final = TO_WORDS + 2
"""One's complement sum of its IPv4 header with total length and checksum 0."""
PEER_UDP_SUM: Final = TO_WORDS + 3
"""One's complement sum of the pseudo header and both ports."""
PEER_WORDS: Final = TO_WORDS + 4
HEADER_BYTES: Final = 48
"""Bytes of a header template: Ethernet, IPv4, UDP, padding."""

# rows of a batch's frames, and of results
OFFSETS, LENGTHS, PORTS = range(3)
# rows of the memory that chains results by port
NEXT, SIZE, HEAD, TAIL, ACTIVE, ADDRESSES, SIZES = range(7)
_ORDER_ROWS: Final = 7

_TABLE_ROWS: Final = 2048
_HASH: Final = 0x9E3779B97F4A7C1
_HASH_SHIFT: Final = 40


class Buffers:
    """The buffers of one loop, and its current batch."""

    def __init__(self) -> None:
        self.loop = np.zeros(LOOP_WORDS, np.int64)
        self.loop[PENDING_AT] = -1
        self.received = np.zeros(RECEIVE_BYTES, np.uint8)
        self.frames = np.zeros(_FRAMES_BYTES, np.uint8)
        self.frame_table = np.zeros((3, BATCH_FRAMES), np.int64)
        self.words = np.zeros(batch.WORDS, np.int64)
        self._bound: batch.NativeBatch | None = None
        self._allocate(_RESULTS_BYTES, _RESULTS)

    def bind(self, native: batch.NativeBatch, installed_us: int) -> None:
        """Run the rest of the batch, and all later ones, with this program."""
        if native is self._bound:
            return
        left = self.words
        self.words = native.new()
        self.words[batch.FRAMES :] = left[batch.FRAMES :]
        self._bound = native
        self.loop[FUNCTION], self.loop[STARTED_US], self.loop[EVENT_DUE] = (
            native.address,
            started_us(native, installed_us),
            0,
        )

    def enlarge(self, native: batch.NativeBatch) -> None:
        """Enlarge the result buffers to the results of one frame; all earlier results are sent."""
        self._allocate(max(_RESULTS_BYTES, 2 * native.room), max(_RESULTS, 2 * native.copies))

    def _allocate(self, size: int, count: int) -> None:
        self.results = np.zeros(size, np.uint8)
        self.result_table = np.zeros((3, count), np.int64)
        self.order = np.zeros((_ORDER_ROWS, max(count, MAX_PORT + 1)), np.int64)
        words = self.words
        words[batch.IN_BYTES] = self.frames.ctypes.data
        for word, row in zip((batch.IN_OFFSETS, batch.IN_LENGTHS, batch.IN_PORTS), self.frame_table, strict=True):
            words[word] = row.ctypes.data
        words[batch.OUT_BYTES], words[batch.OUT_SIZE], words[batch.OUT_CAPACITY] = self.results.ctypes.data, size, count
        for word, row in zip((batch.OUT_OFFSETS, batch.OUT_LENGTHS, batch.OUT_PORTS), self.result_table, strict=True):
            words[word] = row.ctypes.data

    def result(self) -> tuple[int, bytes]:
        """Return port and frame of the next result; the loop continues after it."""
        index = int(self.loop[SENT])
        self.loop[SENT] += 1
        return self._cut(self.results, self.result_table, index)

    def clear_event(self) -> bool:
        """Return whether an event of the last frame run is still to be collected, and clear it."""
        due = bool(self.loop[EVENT_DUE])
        self.loop[EVENT_DUE] = 0
        return due

    def last_port(self) -> int:
        """Return the ingress port of the last frame run."""
        return int(self.frame_table[PORTS, self.words[batch.FRAMES_RUN] - 1])

    def next_frame(self) -> tuple[int, bytes] | None:
        """Return port and frame of the next frame that was not run, and skip it; None if there is none."""
        index = int(self.words[batch.FRAMES_RUN])
        if index == self.words[batch.FRAMES]:
            return None
        self.words[batch.FRAMES_RUN] += 1
        return self._cut(self.frames, self.frame_table, index)

    def next_result(self) -> tuple[int, bytes] | None:
        """Return port and frame of the next unsent result; None if there is none."""
        return self.result() if self.loop[SENT] < self.words[batch.FRAMES_OUT] else None

    @staticmethod
    def _cut(store: NDArray[np.uint8], table: NDArray[np.int64], index: int) -> tuple[int, bytes]:
        start = int(table[OFFSETS, index])
        return int(table[PORTS, index]), store[start : start + int(table[LENGTHS, index])].tobytes()


class PeerTable:
    """The peers for the native loop: by port, and by address in a hash table with linear probing."""

    def __init__(self, plain: bool) -> None:
        """`plain`: send without GSO."""
        self._plain = plain
        self.peers = np.zeros((MAX_PORT + 1, PEER_WORDS), np.int64)
        self.headers = np.zeros((MAX_PORT + 1, HEADER_BYTES), np.uint8)
        self.table = np.zeros((_TABLE_ROWS, 2), np.int64)

    def add(self, port: int, ip: int, udp_port: int, header: bytes, ip_sum: int, udp_sum: int) -> NDArray[np.int64]:
        """Add a peer; return its words."""
        self.peers[port, :TO_WORDS] = destination(ip, udp_port, self._plain, SHORT_RUN_BYTES)
        self.peers[port, TO_WORDS:] = 1, 0, ip_sum, udp_sum
        self.headers[port, : len(header)] = np.frombuffer(header, np.uint8)
        self._insert(port)
        words: NDArray[np.int64] = self.peers[port]
        return words

    def remove(self, port: int) -> None:
        """Remove a peer."""
        self.peers[port, PEER_PRESENT] = 0
        self.table[:] = 0
        for left in np.flatnonzero(self.peers[:, PEER_PRESENT]).tolist():
            self._insert(left)

    def _insert(self, port: int) -> None:
        key = int(self.peers[port, 0]) << 16 | int(self.peers[port, 1])
        row = hashed(key)
        while self.table[row, 1]:
            row = (row + 1) % _TABLE_ROWS
        self.table[row] = key, port


def hashed(key: Any) -> Any:
    """Return the first row of the hash table to probe for a key; compiled code calls it too."""
    return (key * _HASH >> _HASH_SHIFT) & _TABLE_ROWS - 1
