"""A collective in the memory of a host in one compiled call: publish, compare calls, sum a shard, copy the sums out.

Kernels that make system calls: they cannot be interpreted.
"""

from __future__ import annotations

import errno
from typing import Any

import numba
import numpy as np

from p4reduce.paths.hosts.state import (
    ALL,
    AWAIT_SUMS,
    BEGINS_AT,
    BUFFER_WORDS,
    CALL,
    CALL_WORDS,
    CALLED_AT,
    CALLS_AT,
    COMPARE,
    DATA_WORDS,
    DONE,
    DONE_AT,
    END,
    IN_PLACE,
    ONE_SHOT_BLOCKS,
    ONE_SHOT_WORDS,
    OTHER_SHARDS,
    PUBLISH,
    SLEEPS_AT,
    SUM,
    WAITS,
    Copied,
    Host,
    RunState,
)
from p4reduce.protocol.blocks_kernels import sum_held_blocks
from p4reduce.protocol.fence import fence
from p4reduce.protocol.state import UNTOUCHED, Words
from p4reduce_runtime.datagrams.kernels import address_of, errno_now, microseconds, yield_processor
from p4reduce_runtime.futex import sleep_while, wake_all
from p4reduce_runtime.kernels import direct, kernel
from p4reduce_runtime.records import Vector

_types: Any = numba.types
_memcpy = _types.ExternalFunction("memcpy", _types.uintp(_types.uintp, _types.uintp, _types.uintp))
_memset = _types.ExternalFunction("memset", _types.uintp(_types.uintp, _types.int32, _types.uintp))
_EINTR = errno.EINTR
_LOOKS = 8
"""Looks of a rank that waits between two times that it yields the processor to a rank that shares its core."""


@kernel()
def _behind(control: Vector[np.uint64], first: int, count: int, least: np.uint64) -> int:
    """Return the first place of `count` whose number, from index `first` on, is below `least`; -1: none is."""
    for place in range(count):
        if control[first + place] < least:
            return place
    return -1


@kernel()
def _wait(control: Vector[np.uint64], place: int, first: int, count: int, least: int, yields: int, until: int) -> int:
    """Wait until no number of `count` places is below `least`; return the first that is when `until` is over, else -1.

    `yields`: times that the rank yields before it sleeps. `until`: microseconds of the monotonic clock. Returns early
    after a signal. `place`: this rank's.
    """
    number = np.uint64(least)
    found = _behind(control, first, count, number)
    looks = 0
    while found >= 0 and looks < yields * _LOOKS:
        fence()
        found = _behind(control, first, count, number)
        looks += 1
        if looks % _LOOKS == 0:
            yield_processor()
    while found >= 0:
        left_us = until - microseconds()
        if left_us <= 0:
            break
        control[SLEEPS_AT + place] = 1
        fence()
        seen = control[first + found]
        slept: Any = 0
        if seen < number:
            word: Any = np.int64(seen & np.uint64(0xFFFFFFFF))
            slept = sleep_while(address_of(control) + 8 * (first + found), word, left_us)
        control[SLEEPS_AT + place] = 0
        fence()
        found = _behind(control, first, count, number)
        if slept < 0 and errno_now() == _EINTR:  # Python has the signal's handler
            break
    fence()
    return found


@kernel()
def _write(control: Vector[np.uint64], ranks: int, index: int, number: int) -> None:
    """Write a number from which other ranks know what this one wrote or read before, and wake those that sleep."""
    fence()
    control[index] = number
    fence()
    for place in range(ranks):
        if control[SLEEPS_AT + place] != 0:
            wake_all(address_of(control) + 8 * index)
            return


@kernel()
def _order_memory() -> None:
    """Order this process's reads and writes before it and after it, as other processes see them."""
    fence()


wait, write, order_memory = direct(_wait), direct(_write), direct(_order_memory)
"""For Python."""


@kernel()
def _data_begin(run: RunState) -> int:
    """Return the word of each rank's area where its data is copied to."""
    return DATA_WORDS + run.sum_number % 2 * 2 * BUFFER_WORDS if run.one_shot else 0


@kernel()
def _tables(host: Host) -> tuple[Vector[np.uint8], Vector[np.uint8]]:
    """Return the exponents of all ranks' blocks, and which they hold; as far apart as their memory."""
    run = host.run[0]
    if run.one_shot:
        tables = host.data.view(np.uint8)[4 * (_data_begin(run) + ONE_SHOT_WORDS) :]
        return tables, tables[ONE_SHOT_BLOCKS:]
    return host.exponents, host.nonzero


@kernel()
def _copy_part_in(host: Host, part: Copied, first: int, end: int) -> None:
    """Copy a part's blocks from `first` to `end`, counted from the part's first, to this rank's area."""
    run = host.run[0]
    words, step = part.per_block, part.step
    target = address_of(host.data) + 4 * (run.place * run.input_words + _data_begin(run) + part.begin)
    row, last = first // step, -(-end // step)
    while row < last:
        begin, held = row, True
        if step == 1:
            held = host.own_nonzero[part.first + row]
            while row < last and host.own_nonzero[part.first + row] == held:
                row += 1
        else:
            row = last
        if held:
            count = max(0, min(row * words, part.words) - begin * words)
            _memcpy(target + 4 * begin * words, part.values + 4 * begin * words, 4 * count)
            _memset(target + 4 * (begin * words + count), 0, 4 * ((row - begin) * words - count))


@kernel()
def _copy_part_out(host: Host, part: Copied, found: Words, first: int, end: int) -> None:
    """Copy the sums of a part's blocks from `first` to `end` to `found`; zeros for those that no rank held."""
    first, end = max(first, part.kept_begin), min(end, part.kept_end)
    words = part.sum_words
    source = address_of(host.data) + 4 * (host.run[0].sums_begin + part.sums_begin)
    target = address_of(found) + 4 * part.found_begin
    room = min(part.found_end, len(found)) - part.found_begin  # the last block may find less room than a block
    row = first
    while row < end:
        begin, touched = row, host.agreed[part.first + row] != UNTOUCHED
        while row < end and (host.agreed[part.first + row] != UNTOUCHED) == touched:
            row += 1
        at = (begin - part.kept_begin) * words
        size = 4 * (min((row - part.kept_begin) * words, room) - at)
        if touched:
            _memcpy(target + 4 * at, source + 4 * (begin - part.kept_begin) * words, size)
        else:
            _memset(target + 4 * at, 0, size)


@kernel()
def _bind(host: Host, own: Words) -> None:
    """Let a part that is the only one have `own` as its data."""
    if len(host.copied) == 1:
        host.copied[0].values = address_of(own)
        host.copied[0].words = len(own)


@kernel()
def _copy_span_in(host: Host, first: int, last: int) -> None:
    """Copy a span of blocks to this rank's area."""
    for i in range(len(host.copied)):
        part = host.copied[i]
        begin, end = max(first - part.first, 0), min(last - part.first, part.blocks)
        if begin < end:
            _copy_part_in(host, part, begin, end)


@kernel()
def _copy_span_out(host: Host, found: Words, first: int, last: int) -> None:
    """Copy the sums of a span of blocks to `found`."""
    for i in range(len(host.copied)):
        part = host.copied[i]
        _copy_part_out(host, part, found, first - part.first, last - part.first)


@kernel()
def _copy_in(host: Host, own: Words, first: int, last: int) -> None:
    """Copy a span of blocks to this rank's area; `own` as in `run`."""
    _bind(host, own)
    _copy_span_in(host, first, last)


@kernel()
def _take_exponents(host: Host, first: int, last: int) -> None:
    """Take the exponents of the sums of a span of blocks."""
    at = 4 * host.run[0].ranks * host.run[0].input_words
    for block in range(first, last):
        host.agreed[block] = host.exponents[at + block]


@kernel()
def _copy_out(host: Host, found: Words, first: int, last: int) -> None:
    """Take the exponents of a span of blocks, and copy their sums to `found` where sums are copied."""
    _take_exponents(host, first, last)
    if host.run[0].copies_out == ALL:
        _copy_span_out(host, found, first, last)


@kernel()
def _shard(host: Host) -> tuple[int, int]:
    """Return the first block of this rank's shard, and the end."""
    run = host.run[0]
    return run.blocks * run.place // run.ranks, run.blocks * (run.place + 1) // run.ranks


@kernel()
def _publish(host: Host) -> None:
    """Write what this rank's blocks are, and its data."""
    run, at = host.run[0], 4 * host.run[0].place * host.run[0].input_words
    exponents, nonzero = _tables(host)
    for block in range(run.blocks):
        exponents[at + block] = host.own_exponents[block]
        nonzero[at + block] = host.own_nonzero[block]
    host.control[BEGINS_AT + run.place] = run.begin
    if run.copies_in == ALL:
        _copy_span_in(host, 0, run.blocks)
    elif run.copies_in == OTHER_SHARDS:
        first, last = _shard(host)
        _copy_span_in(host, 0, first)
        _copy_span_in(host, last, run.blocks)


@kernel()
def _are_alike(host: Host) -> bool:
    """Return whether all ranks have called what this one has, but for the window that they propose."""
    run = host.run[0]
    first = CALLS_AT + run.call_number % 2 * run.ranks * CALL_WORDS
    for place in range(run.ranks):
        for word in range(CALL_WORDS):
            if host.control[first + place * CALL_WORDS + word] != host.call[word]:
                return False
    return True


@kernel()
def _sum(host: Host, own: Words, found: Words) -> None:
    """Write the sums of this rank's shard, or of all shards in one shot."""
    run, control, begins = host.run[0], host.control, host.begins
    copied, in_place = True, True
    for place in range(run.ranks):
        copy_begin = place * run.input_words + _data_begin(run)
        begin: Any = copy_begin if run.one_shot else np.int64(control[BEGINS_AT + place])
        in_place = in_place and begin & IN_PLACE != 0
        begins[place] = begin & ~IN_PLACE
        copied = copied and begins[place] == copy_begin
    for i in range(len(host.parts)):  # beyond what was not copied may be other data, not zeros
        host.parts[i].end = host.copied[i].end if copied else host.copied[i].end_there
    run.in_place = in_place
    begins[run.ranks] = run.sums_begin
    sums_own = run.copies_out == OTHER_SHARDS and not in_place
    first, last = _shard(host)
    exponents, nonzero = _tables(host)
    agreed = host.exponents[4 * run.ranks * run.input_words :]
    if run.one_shot:
        first, last, agreed = 0, run.blocks, host.agreed
    sum_held_blocks(
        host.parts,
        host.own_parts if sums_own else host.own_parts[:0],
        host.elements,
        own if sums_own else own[:0],
        run.place,
        begins[: run.ranks],
        exponents,
        nonzero,
        first,
        host.holders[: last - first],
        host.scales,
        host.units,
        np.uint64(host.words.shape[1]),
        host.words,
        host.spare,
        host.data,
        begins[: run.ranks] if in_place else begins[run.ranks :],
        found if sums_own else found[:0],
        agreed,
    )


@kernel()
def _clear(host: Host) -> None:
    """Write zeros where no rank held a block of data that the sums have replaced: there may be negative zeros."""
    part = host.copied[0]
    words = part.sum_words
    for block in range(host.run[0].blocks):
        if host.agreed[block] == UNTOUCHED:
            _memset(part.values + 4 * block * words, 0, 4 * (min((block + 1) * words, part.words) - block * words))


@kernel()
def _take_sums(host: Host, found: Words) -> None:
    """Copy the sums of all shards, and their exponents, out of the memory."""
    run = host.run[0]
    if not run.one_shot:
        _take_exponents(host, 0, run.blocks)
    if run.in_place:
        _clear(host)
    elif run.copies_out == ALL:
        _copy_span_out(host, found, 0, run.blocks)
    elif run.copies_out == OTHER_SHARDS:
        first, last = _shard(host)
        _copy_span_out(host, found, 0, first)
        _copy_span_out(host, found, last, run.blocks)


@kernel()
def _run(host: Host, own: Words, found: Words, timeout_us: int) -> int:
    """Go on with a collective; return DONE at its end, WAITS after `timeout_us` or a signal, or COMPARE.

    `own`: this rank's data, where it is one part; `found`: the memory of its results.
    """
    run, control = host.run[0], host.control
    until = microseconds() + timeout_us
    if run.next_step == PUBLISH:
        if run.blocks:
            _bind(host, own)
            _publish(host)
        if run.call_number == 0:
            run.next_step = SUM
            return DONE
        first = CALLS_AT + (run.call_number % 2 * run.ranks + run.place) * CALL_WORDS
        for word in range(CALL_WORDS):
            control[first + word] = host.call[word]
        _write(control, run.ranks, CALLED_AT + run.place, run.call_number)
        run.next_step = CALL
    if run.next_step == CALL:
        if _wait(control, run.place, CALLED_AT, run.ranks, run.call_number, run.yields, until) >= 0:
            run.yields = 0
            return WAITS
        if not _are_alike(host):
            return COMPARE
        run.next_step = SUM if run.blocks else END
    if run.next_step == SUM:
        _sum(host, own, found)
        _write(control, run.ranks, DONE_AT + run.place, run.sum_number)
        run.next_step = AWAIT_SUMS
    if run.next_step == AWAIT_SUMS:
        if not run.one_shot and _wait(control, run.place, DONE_AT, run.ranks, run.sum_number, run.yields, until) >= 0:
            run.yields = 0
            return WAITS
        _take_sums(host, found)
        run.next_step = END
    return DONE


run, copy_in, copy_out = direct(_run), direct(_copy_in), direct(_copy_out)
"""For Python."""
