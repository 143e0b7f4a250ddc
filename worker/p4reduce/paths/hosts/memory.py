"""The memory that the ranks of a host share: a file without a name, which ends with the last rank that has it open.

Every rank has an area for its data and its arrays, and one more is for the sums. Data may be as long as the largest
tensor; the kernel gives memory only to pages that were written, and keeps them until the communicators are closed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import logging
import mmap
import os
import secrets
import select
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import address
from p4reduce.errors import CollectiveError, CollectiveTimeoutError, HostLostError, P4ReduceError
from p4reduce.paths.hosts.state import (
    ALL_BLOCKS,
    BEGINS_AT,
    BUFFER_WORDS,
    BUFFERS,
    CALL_WORDS,
    CALLED_AT,
    CALLS_AT,
    DATA_WORDS,
    DONE_AT,
    FAILED_AT,
    FINISHED_AT,
    PUBLISHED_AT,
    YIELDS,
)
from p4reduce.paths.path import Lost
from p4reduce.protocol.call import Call
from p4reduce.protocol.deadline import Obstacle, too_late
from p4reduce_contracts.ranks import name_ranks
from p4reduce_contracts.wire.numbers import MAX_BLOCKS

NONCE_BYTES: Final = 16
_NAME: Final = "p4reduce-host"
_CONTROL_BYTES: Final = 1 << 16
_TABLE_BYTES: Final = MAX_BLOCKS + 1
_DATA_BYTES: Final = 4 * DATA_WORDS
_BUFFERS_BYTES: Final = -(-4 * BUFFERS * BUFFER_WORDS // mmap.PAGESIZE) * mmap.PAGESIZE
_SUMS_AT: Final = 2048
"""Bytes from where the sums begin to the next page. From the beginning of a page to the 16th byte of another, where
numpy's arrays of 32 MB begin, glibc copies less than 768 KB ten times as slowly on AMD's Zen 3 (`rep movsb`)."""
_DATA_AT: Final = 2 * _TABLE_BYTES + mmap.PAGESIZE
_ARRAYS_AT: Final = _DATA_AT + _DATA_BYTES + _BUFFERS_BYTES
"""Bytes of an area before its arrays, those that tensors are given to be summed where they are."""
_ARRAYS_BYTES: Final = 1 << 31
_AREA_BYTES: Final = _ARRAYS_AT + _ARRAYS_BYTES
_MAP_FIXED: Final = 16
"""The flag of Linux's mmap with which the new mapping replaces what was at the address."""
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
LOOK_S: Final = 0.02
"""Seconds between two looks of a rank that waits at whether other ranks are alive."""
_PAUSE_S: Final = 500e-6
"""Seconds between two looks of a rank that waits for sums to copy out."""
_NOTICE_S: Final = 0.2
"""Seconds to wait, after a rank's process has ended, for the controller's notice that the rank left the job."""

Words = NDArray[np.uint32]
Copy = Callable[[int], None] | None
"""A function that copies out the finished part of the sum of a number; None: nothing is copied."""
Places = Callable[[], NDArray[np.bool_]]
"""A function that says, at present, of which places of the host something is true."""
_log = logging.getLogger(__name__)


class MemoryFile:
    """A file in memory that other processes of this user can open by this process's number and the descriptor."""

    def __init__(self, descriptor: int, nonce: bytes) -> None:
        self.descriptor = descriptor
        self.nonce = nonce

    @classmethod
    def create(cls, ranks: int) -> MemoryFile:
        """Make a file with areas for so many ranks, which keeps its size. OSError where the system has none."""
        descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        nonce = secrets.token_bytes(NONCE_BYTES)
        try:
            os.ftruncate(descriptor, _CONTROL_BYTES + (ranks + 1) * _AREA_BYTES)
            os.pwrite(descriptor, nonce, 0)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor, nonce)

    @classmethod
    def open(cls, process: int, descriptor: int, nonce: bytes) -> MemoryFile:
        """Open the file of another process; OSError if that is not allowed, or it is another file than that of `nonce`.

        In another container a process of this number may be any.
        """
        path = f"/proc/{process}/fd/{descriptor}"
        if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
            raise OSError(f"descriptor {descriptor} of process {process} is another file")
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.pread(opened, NONCE_BYTES, 0) != nonce:
                raise OSError(f"descriptor {descriptor} of process {process} is another file")
        except BaseException:
            os.close(opened)
            raise
        return cls(opened, nonce)

    def close(self) -> None:
        """Close this process's descriptor; what is mapped stays."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class HostMemory:
    """The mapped memory of a host of some ranks, as one of them sees it."""

    def __init__(self, file: MemoryFile, ranks: Sequence[int], processes: Sequence[int]) -> None:
        """`ranks` of the host and their `processes`. OSError when there is no room to map it."""
        self.ranks, self._processes = tuple(ranks), tuple(processes)
        count = len(ranks)
        self._file = file
        self._map = mmap.mmap(file.descriptor, _CONTROL_BYTES + (count + 1) * _AREA_BYTES)
        with contextlib.suppress(AttributeError, OSError):
            self._map.madvise(mmap.MADV_DONTDUMP)
        words: Words = np.frombuffer(self._map, np.uint32)
        tables: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        self.control = control = np.frombuffer(self._map, np.uint64, _CONTROL_BYTES // 8)
        self._done, self._failed = control[DONE_AT : DONE_AT + count], control[FAILED_AT : FAILED_AT + count]
        self.published: NDArray[np.uint64] = control[PUBLISHED_AT : PUBLISHED_AT + count]
        """[ranks]: the number of blocks of each shard that the rank's data has here."""
        self._finished = control[FINISHED_AT : FINISHED_AT + count]
        self._called = control[CALLED_AT : CALLED_AT + count]
        self.begins: NDArray[np.int64] = control[BEGINS_AT : BEGINS_AT + count].view(np.int64)
        """[ranks]: what `set_begin` has written."""
        self._calls = control[CALLS_AT : CALLS_AT + 2 * count * CALL_WORDS].reshape(2, count, CALL_WORDS)
        begins = [_CONTROL_BYTES + place * _AREA_BYTES for place in range(count + 1)]
        self.all_exponents, self.all_nonzero = tables[begins[0] :], tables[begins[0] + _TABLE_BYTES :]
        """What `exponents` and `nonzero` return for all places, one after the other: 4 · `input_words` bytes apart."""
        self._exponents = [tables[begin : begin + MAX_BLOCKS] for begin in begins]
        self._nonzero = [
            tables[begin + _TABLE_BYTES : begin + _TABLE_BYTES + MAX_BLOCKS].view(np.bool_) for begin in begins
        ]
        data = [(begin + _DATA_AT) // 4 for begin in begins]
        self.data: Words = words[data[0] :]
        """The data of all ranks: that of place k begins `k · input_words` words after that of place 0."""
        self._map_at, self._data_at = address(words), address(self.data)
        self.elements: Words = self.data[:]
        """The same, read-only."""
        self.elements.flags.writeable = False
        self.sums_begin = data[count] - _SUMS_AT // 4 - data[0]
        """The word of `data` where `sums` begin."""
        self.sums: Words = self.data[self.sums_begin :][:DATA_WORDS]
        self._arrays: dict[int, int] = {}
        """The bytes that each array of this rank has, by where it begins in the memory."""
        self._shared = 0, 0
        """The begin and end of the bytes of the memory that this rank's arrays have had."""
        self.has_arrays = False
        """Whether this rank has had arrays here."""
        self.notice_s = _NOTICE_S
        """Seconds that a controller has to say why a rank has ended; 0 without one."""
        self._allocating, self.detached, self._process = threading.Lock(), False, os.getpid()
        self._kernels = load_run()
        self._watched = _watch([pid for pid in processes if pid != os.getpid()])

    input_words: Final = _AREA_BYTES // 4

    def allocate(self, place: int, size: int) -> NDArray[np.uint8] | None:
        """Return so many bytes for arrays of this rank, which are free again when none refers to them.

        None without room, after `detach`, and in a child process. Another thread may drop an array meanwhile.
        """
        if os.getpid() != self._process:
            return None
        with self._allocating:
            first = begin = _CONTROL_BYTES + place * _AREA_BYTES + _ARRAYS_AT
            length = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            for taken, bytes_taken in sorted(self._arrays.copy().items()):
                if begin + length <= taken:
                    break
                begin = taken + bytes_taken
            if not size or self.detached or begin + length > first + _ARRAYS_BYTES:
                return None
            owner = (ctypes.c_uint8 * size).from_buffer(self._map, begin)
            self._arrays[begin] = length
            weakref.finalize(owner, self._arrays.pop, begin)
            self._shared, self.has_arrays = (first, max(self._shared[1], begin + length)), True
            if self.detached:  # by another thread, which may not have seen what is shared now
                return None
            _allocated_from.add(self)
        return np.frombuffer(memoryview(owner), np.uint8)  # views of it refer to it, not to the map

    def array_at(self, words: NDArray[Any]) -> int | None:
        """Return the word of `data` where words lie that this rank allocated and shares; None of others."""
        at = address(words) - self._map_at
        first, end = self._shared
        return (address(words) - self._data_at) // 4 if first <= at < end else None

    def set_begin(self, place: int, word: int) -> None:
        """Write where a rank's data begins, before the ranks compare their calls."""
        self._write(self.begins, place, word)

    def detach(self) -> None:
        """Make the memory that this process allocated private: other ranks do not see what it writes from now on.

        After an error or the end the caller may, while another rank still reads it. Does not raise.
        """
        _allocated_from.discard(self)
        self.detached = True
        (first, end), self._shared = self._shared, (0, 0)
        if size := end - first:
            begin = ctypes.c_void_p(self._map_at + first)
            how = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
            if _LIBC.mmap(begin, ctypes.c_size_t(size), *how, self._file.descriptor, ctypes.c_long(first)) == -1:
                why, advice = os.strerror(ctypes.get_errno()), "write to them when the other ranks' sums have ended"
                _log.warning("%d bytes of Communicator.empty stay shared (%s): %s", size, why, advice)

    @property
    def bytes_used(self) -> int:
        """Bytes of memory that the file takes at present."""
        try:
            return os.fstat(self._file.descriptor).st_blocks * 512
        except OSError:  # it is closed
            return 0

    def exponents(self, place: int) -> NDArray[np.uint8]:
        """Return [blocks]: the exponents of the data at a place; after the last place, those agreed for the sums."""
        return self._exponents[place]

    def nonzero(self, place: int) -> NDArray[np.bool_]:
        """Return [blocks]: which the data at a place holds."""
        return self._nonzero[place]

    def set_published(self, place: int, blocks: int) -> None:
        """Write how many blocks of each shard a rank's data has in the memory; 0 until the ranks compare calls."""
        self._write(self.published, place, blocks)

    def set_finished(self, shard: int, blocks: int) -> None:
        """Write how many blocks of a shard have their sums in the memory; 0 before the ranks compare their calls."""
        self._write(self._finished, shard, blocks)

    def finished(self, shard: int, number: int) -> int:
        """Return how many blocks of a shard have their sums in the memory, in sum `number`, which has begun."""
        done = self._done[shard] == number
        finished = int(self._finished[shard])
        self._kernels.order_memory()
        return ALL_BLOCKS if done else finished

    def set_done(self, place: int, number: int) -> None:
        """Write that a rank has done its part of sum `number`: its data, and its shard's sums, are in the memory."""
        self._write(self._done, place, number)

    def set_failed(self, place: int, number: int) -> None:
        """Write that a rank has failed in sum `number`, or if its part of that is done, in the next."""
        self._failed[place] = number + int(self._done[place] == number)

    def _write(self, words: NDArray[Any], place: int, number: int) -> None:
        """Write a number, from which another rank knows what this one wrote or read before, and wake who waits."""
        index = (address(words) - address(self.control)) // 8 + place
        self._kernels.write(self.control, len(self.ranks), index, number)

    def missing(self, number: int) -> list[int]:
        """Return the ranks that have not written their call `number`."""
        return [self.ranks[place] for place in np.flatnonzero(self._called < number)]

    def calls(self, number: int) -> list[list[int]]:
        """Return what each rank has called as its call `number`, once all have."""
        found: list[list[int]] = self._calls[number % 2].tolist()
        return found

    def look_for_calls(self, number: int, deadline: float, lost: Lost, call: Call, timeout_s: float) -> None:
        """Raise an error where a rank that has not written its call `number` will not, or `deadline` is over.

        Errors are those of `look`.
        """

        def late(_: object) -> CollectiveTimeoutError:
            ranks = self.missing(number)
            why = Obstacle(f"{name_ranks(ranks)} of this host did not call it", tuple(ranks))
            return too_late(call, timeout_s, why)

        called = self._called
        self._look(lambda: called < number, lambda: (called < number) & (self._failed > 0), deadline, lost, call, late)

    def look(self, shards: int, number: int, deadline: float, lost: Lost, what: object, *, blocks: int = 0) -> None:
        """Raise an error where a shard of sum `number` will not be done, or `deadline` is over; nothing if all are.

        With `blocks`: where a rank will not publish so many. Raises what `lost` returns, CollectiveTimeoutError at
        `deadline` of the monotonic clock, CollectiveError when a rank of this host has failed, and HostLostError when
        one has ended.
        """

        def missing() -> NDArray[np.bool_]:
            return self.published < blocks if blocks else self._done[:shards] != number

        def late(places: NDArray[np.int64]) -> CollectiveTimeoutError:
            ranks = [self.ranks[place] for place in places]
            text = f"{what}: no {'data' if blocks else 'sum'} came from rank {', '.join(map(str, ranks))} of this host"
            return CollectiveTimeoutError(f"{text} in time; {_HINT}", () if blocks else ranks[:1])

        self._look(missing, lambda: self._failed == number, deadline, lost, what, late)

    def wait(
        self,
        place: int,
        shards: int,
        number: int,
        deadline: float,
        lost: Lost,
        what: object,
        copy: Copy = None,
        *,
        blocks: int = 0,
    ) -> None:
        """Return when all shards of sum `number` are done; with `blocks`, when all ranks have published so many.

        `place`: this rank's. Meanwhile call `copy` with `number`. Errors are those of `look`.
        """
        awaited = (PUBLISHED_AT, len(self.ranks), blocks) if blocks else (DONE_AT, shards, number)
        look_at, yields = time.monotonic() + LOOK_S, YIELDS
        while self._sleeps(place, awaited, LOOK_S if copy is None else _PAUSE_S, yields):
            yields = 0
            if copy is not None:
                copy(number)
            if copy is None or time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_S
                self.look(shards, number, deadline, lost, what, blocks=blocks)

    def _sleeps(self, place: int, awaited: tuple[int, int, int], timeout_s: float, yields: int) -> bool:
        """Sleep until numbers of other ranks are as high as awaited; return whether time, or a signal, ended it.

        `awaited`: the index of the first number in the control pages, how many, and the least that they must be.
        `yields`: as in RunState.
        """
        until = int((time.monotonic() + timeout_s) * 1e6)
        return int(self._kernels.wait(self.control, place, *awaited, yields, until)) >= 0

    def _look(  # noqa: PLR0917
        self,
        missing: Places,
        failed: Places,
        deadline: float,
        lost: Lost,
        what: object,
        late: Callable[[NDArray[np.int64]], P4ReduceError],
    ) -> None:
        """Raise an error unless no rank is `missing`; `failed`: those that will not come, `late`: the error in time."""
        try:
            self._check(failed, lost, what)
        except P4ReduceError:
            if missing().any():  # else it ended after its part was done
                raise
        if time.monotonic() >= deadline and len(places := np.flatnonzero(missing().copy())):
            raise late(places)

    def _check(self, failed: Places, lost: Lost, what: object) -> None:
        """Raise an error when what is waited for cannot come any more."""
        failure = lost()
        if failure is not None:
            raise failure.with_traceback(None)
        for place in np.flatnonzero(failed()):
            raise CollectiveError(f"{what}: rank {self.ranks[place]} of this host failed in it; {_HINT}")
        for process, ended in self._watched:
            if ended():
                time.sleep(self.notice_s)
                if (failure := lost()) is not None:
                    raise failure.with_traceback(None)
                rank = self.ranks[self._processes.index(process)]
                raise HostLostError(f"{what}: rank {rank} of this host, process {process}, has ended")

    def close(self) -> None:
        """Give the memory back, as far as no array refers to it any more. Does not raise."""
        self.detach()
        for _, ended in self._watched:
            ended.close()
        self._watched = []
        self._file.close()


_allocated_from: set[HostMemory] = set()
"""Memories with arrays that a child process must not share; arrays do not refer to them."""


def load_run() -> ModuleType:
    """Return the kernels of sums in a host's memory. The first time on a machine they are compiled."""
    from p4reduce.paths.hosts import kernels

    return kernels


def _detach_all() -> None:
    for memory in list(_allocated_from):
        memory.detach()


os.register_at_fork(after_in_child=_detach_all)
_HINT: Final = "its log says why; join again"


class _Ended:
    """Whether a process has ended, by its descriptor."""

    def __init__(self, process: int) -> None:
        self._descriptor = os.pidfd_open(process)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def __call__(self) -> bool:
        return bool(self._poll.poll(0))

    def close(self) -> None:
        os.close(self._descriptor)


def _watch(processes: Sequence[int]) -> list[Any]:
    """Return each process with what says whether it has ended; without those that may not be watched."""
    watched: list[Any] = []
    for process in processes:
        with contextlib.suppress(OSError, AttributeError):
            watched.append((process, _Ended(process)))
    return watched
