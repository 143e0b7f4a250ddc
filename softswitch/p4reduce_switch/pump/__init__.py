"""The data-plane loop as one native call: wait, receive all that is there, run the batch, send.

`udp_kernels.py` has the loop over the UDP underlay and `ethernet_kernels.py` the one over interfaces; they run without
the GIL and come back to Python for a `Reason`. What they work on is here: arrays that both sides write, the native loop
inside its call and Python between two.

    receive buffer   one super-datagram: what one sender sent in a row
    frames           its datagrams as Ethernet frames, those of the next super-datagrams too: a batch
    results          what the program made of a batch, until it is sent

The loop never waits for more to arrive. It can leave at any point, and goes on there when it is called again.
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
"""Whatever arrives at once fits, with Ethernet's header."""
FRAME_BYTES: Final = 65536 + 64 + 8
"""Room that the longest datagram needs as a frame, wherever it starts."""
_FRAMES_BYTES: Final = 512 << 10
_RESULTS_BYTES: Final = 1 << 20
_RESULTS: Final = 2048


class Batched(Protocol):
    """A program that runs many frames in one native call."""

    @property
    def batch(self) -> batch.NativeBatch:
        """Its function."""

    def collect(self) -> None:
        """Give the digests of the frame run last to `on_digest`; ExecutionError: it met undefined behaviour."""


def batched(program: object) -> Batched | None:
    """Return the program if it has a native batch."""
    return None if getattr(program, "batch", None) is None else cast(Batched, program)


def started_us(native: batch.NativeBatch, otherwise: int) -> int:
    """Return when the program's time began, on the monotonic clock in microseconds, as far as it says so."""
    return getattr(native, "started_us", otherwise)


class Reason(enum.IntEnum):
    """Why the native loop came back."""

    TURN = 0  # somebody wants the lock or has had it, or it is time to look at signals
    WOKEN = 1  # by the descriptor that is polled beside the socket, or by a signal
    STRANGER = 2  # the datagram at HELD_AT is of no known peer
    RESULT = 3  # the result SENT leaves by a port that is not the loop's: the CPU port, or none
    EVENT = 4  # the program has digests or a failure to collect, of the frame before TAKEN
    NO_ROOM = 5  # one frame may cause more results than there is room for


# words of the loop's own state
FUNCTION: Final = 0
"""Address of the program's function."""
STARTED_US: Final = 1
"""When the program started, on the monotonic clock."""
SENT: Final = 2
"""Results that are done with."""
EVENT_DUE: Final = 3
HELD_AT: Final = 4
"""Where the next datagram of the receive buffer starts; -1: there is none."""
HELD_BYTES: Final = 5
HELD_SEGMENT: Final = 6
HELD_IP: Final = 7
HELD_PORT: Final = 8
# and what it counts: see UnderlayCounters
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
PEER_HEARD_US: Final = TO_WORDS + 1
"""When a datagram of it arrived last, on the monotonic clock."""
PEER_IP_SUM: Final = TO_WORDS + 2
"""Of its IPv4 header's other fields, as if total length and checksum were 0."""
PEER_UDP_SUM: Final = TO_WORDS + 3
"""Of the pseudo header and both ports."""
PEER_WORDS: Final = TO_WORDS + 4
HEADER_BYTES: Final = 48
"""Of a row of header templates: Ethernet, IPv4, UDP, unused."""

# rows of a batch's frames, and of results
OFFSETS, LENGTHS, PORTS = range(3)
# rows of the memory in which results are put in order
NEXT, SIZE, HEAD, TAIL, ACTIVE, ADDRESSES, SIZES = range(7)
_ORDER_ROWS: Final = 7

_TABLE_ROWS: Final = 2048
_HASH: Final = 0x9E3779B97F4A7C1
_HASH_SHIFT: Final = 40


class Buffers:
    """The memory of one loop, and the batch that it has run in part."""

    def __init__(self) -> None:
        self.loop = np.zeros(LOOP_WORDS, np.int64)
        self.loop[HELD_AT] = -1
        self.received = np.zeros(RECEIVE_BYTES, np.uint8)
        self.frames = np.zeros(_FRAMES_BYTES, np.uint8)
        self.frame_table = np.zeros((3, BATCH_FRAMES), np.int64)
        self.words = np.zeros(batch.WORDS, np.int64)
        self._bound: batch.NativeBatch | None = None
        self._make_room(_RESULTS_BYTES, _RESULTS)

    def bind(self, native: batch.NativeBatch, installed_us: int) -> None:
        """Run what is left of the batch, and all that follow, with this program."""
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

    def make_room(self, native: batch.NativeBatch) -> None:
        """Have room for all that a frame may cause, now that every result is sent."""
        self._make_room(max(_RESULTS_BYTES, 2 * native.room), max(_RESULTS, 2 * native.copies))

    def _make_room(self, size: int, count: int) -> None:
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
        """Return port and frame of the result that the loop came back for; it goes on after it."""
        index = int(self.loop[SENT])
        self.loop[SENT] += 1
        return self._cut(self.results, self.result_table, index)

    def take_event(self) -> bool:
        """Return whether an event of the frame that was run last is still to be collected; the loop forgets it."""
        due = bool(self.loop[EVENT_DUE])
        self.loop[EVENT_DUE] = 0
        return due

    def last_taken(self) -> int:
        """Return the port where the frame arrived that was run last."""
        return int(self.frame_table[PORTS, self.words[batch.TAKEN] - 1])

    def take_frame(self) -> tuple[int, bytes] | None:
        """Return port and frame of the next that is not run, for whoever runs it instead; None if there is none."""
        index = int(self.words[batch.TAKEN])
        if index == self.words[batch.FRAMES]:
            return None
        self.words[batch.TAKEN] += 1
        return self._cut(self.frames, self.frame_table, index)

    def take_result(self) -> tuple[int, bytes] | None:
        """Return port and frame of the next result that is not sent; None if there is none."""
        return self.result() if self.loop[SENT] < self.words[batch.FRAMES_OUT] else None

    @staticmethod
    def _cut(store: NDArray[np.uint8], table: NDArray[np.int64], index: int) -> tuple[int, bytes]:
        start = int(table[OFFSETS, index])
        return int(table[PORTS, index]), store[start : start + int(table[LENGTHS, index])].tobytes()


class PeerTable:
    """The peers as the native loop looks them up: by port, and by address in a hash table of linear probing."""

    def __init__(self, plain: bool) -> None:
        """`plain`: what is sent to any of them goes datagram by datagram."""
        self._plain = plain
        self.peers = np.zeros((MAX_PORT + 1, PEER_WORDS), np.int64)
        self.headers = np.zeros((MAX_PORT + 1, HEADER_BYTES), np.uint8)
        self.table = np.zeros((_TABLE_ROWS, 2), np.int64)

    def add(self, port: int, ip: int, udp_port: int, header: bytes, ip_sum: int, udp_sum: int) -> NDArray[np.int64]:
        """Enter a peer; return its words."""
        self.peers[port, :TO_WORDS] = destination(ip, udp_port, self._plain, SHORT_RUN_BYTES)
        self.peers[port, TO_WORDS:] = 1, 0, ip_sum, udp_sum
        self.headers[port, : len(header)] = np.frombuffer(header, np.uint8)
        self._enter(port)
        words: NDArray[np.int64] = self.peers[port]
        return words

    def remove(self, port: int) -> None:
        """Forget a peer."""
        self.peers[port, PEER_PRESENT] = 0
        self.table[:] = 0
        for left in np.flatnonzero(self.peers[:, PEER_PRESENT]).tolist():
            self._enter(left)

    def _enter(self, port: int) -> None:
        key = int(self.peers[port, 0]) << 16 | int(self.peers[port, 1])
        row = hashed(key)
        while self.table[row, 1]:
            row = (row + 1) % _TABLE_ROWS
        self.table[row] = key, port


def hashed(key: Any) -> Any:
    """Return the row of the hash table where a key is looked for first; compiled code calls it too."""
    return (key * _HASH >> _HASH_SHIFT) & _TABLE_ROWS - 1
