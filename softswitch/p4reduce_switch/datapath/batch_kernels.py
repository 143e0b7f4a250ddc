"""Shared by the loops: running a batch, and queues of its results for each port. For kernels only."""

from __future__ import annotations

from numba.extending import register_jitable

from p4reduce_runtime.datagrams.kernels import address_of
from p4reduce_switch.datapath import Memory, Reason
from p4reduce_switch.datapath.addresses import call_function
from p4reduce_switch.program import batch

EVENT, BUFFER_FULL, FRAMES = int(Reason.EVENT), int(Reason.BUFFER_FULL), int(Reason.FRAMES)
SEND_RESULTS, BATCH_DONE = -1, -2
MAX_RUN_US = 20_000
"""Microseconds that a loop runs before it returns to Python, which handles signals."""
_IDLE_US = 1_000_000


@register_jitable
def run_batch(memory: Memory, now: int) -> int:
    """Run more of the batch; all results must be sent. Return a `Reason` to return, SEND_RESULTS or BATCH_DONE."""
    state, run = memory.state[0], memory.batch[0]
    state.sent = 0
    run.frames_out = 0
    run.bytes_out = 0
    if state.event_due:
        state.event_due = False
        return EVENT
    if run.frames_run == run.frames:
        run.frames = 0
        run.frames_run = 0
        return BATCH_DONE
    if state.function == 0:
        return FRAMES
    run.now_us = now - state.started_us
    stopped = call_function(state.function, address_of(memory.batch))
    state.event_due = stopped == batch.EVENT
    return BUFFER_FULL if stopped == batch.FULL and run.frames_out == 0 else SEND_RESULTS


@register_jitable
def idle_us(memory: Memory, now: int) -> int:
    """Return how long the loop may wait for frames."""
    due = memory.state[0].due_us
    return _IDLE_US if due < 0 else min(max(0, due - now), _IDLE_US)


@register_jitable
def is_due(memory: Memory, now: int) -> bool:
    """Return whether Python is needed now."""
    return 0 <= memory.state[0].due_us <= now


@register_jitable
def enqueue(memory: Memory, index: int, port: int, active: int) -> int:
    """Append a result to the queue of its port; return the number of ports with results."""
    queue = memory.queues[port]
    memory.queued[index].next = -1
    if queue.head == 0:
        queue.head = index + 1
        memory.active[active] = port
        active += 1
    else:
        memory.queued[queue.tail].next = index
    queue.tail = index
    return active


@register_jitable
def dequeue_all(memory: Memory, port: int) -> int:
    """Return the first result of a port; the others follow by `next`. The queue is empty then."""
    queue = memory.queues[port]
    first = queue.head - 1
    queue.head = 0
    return first


@register_jitable
def end_of_frames(memory: Memory) -> int:
    """Return where the batch's last frame ends in the buffer."""
    count = memory.batch[0].frames
    if count == 0:
        return 0
    last = memory.frame_table[count - 1]
    return last.offset + last.length


@register_jitable
def add_frame(memory: Memory, offset: int, length: int, port: int) -> None:
    """Add a frame, written at `offset` in the buffer, to the batch."""
    run = memory.batch[0]
    frame = memory.frame_table[run.frames]
    frame.offset = offset
    frame.length = length
    frame.port = port
    run.frames += 1
