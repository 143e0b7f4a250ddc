"""A collective over a socket in one native call: receive, take in, contribute, repeat, until Python is needed.

Kernels that make system calls: they cannot be interpreted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from p4reduce.protocol.channel import Sockets
from p4reduce.protocol.contribute import contribute
from p4reduce.protocol.receive import receive
from p4reduce.protocol.recovery import begin as begin_collective
from p4reduce.protocol.recovery import next_timer, on_loss_detection_timeout, set_loss_detection_timers
from p4reduce.protocol.state import END, Engine
from p4reduce.protocol.timing import GRANULARITY_S
from p4reduce_runtime.datagrams import RECEIVE_BYTES
from p4reduce_runtime.datagrams.kernels import microseconds, send, sleep, wait
from p4reduce_runtime.datagrams.kernels import receive as receive_datagrams
from p4reduce_runtime.kernels import direct, kernel

# why `run` stopped, beside what `receive` stops for
PAUSE, RELEASE = 10, 11
LONG_WAIT = 0.0001
"""Seconds of a wait after which the next one sleeps without polling first: four ranks and a switch on two cores spent a
third of a worker's time on polls that found nothing."""
LONGEST_LATENESS = 0.1
"""Seconds after which a timer is handled although frames keep coming."""


@kernel(separate=True)
def receive_burst(sockets: Sockets, engine: Engine) -> int:
    """Receive the datagrams that have arrived, as far as there is room, for `receive`; return their number."""
    state, stats, received = engine.state[0], engine.stats[0], sockets.received
    data = sockets.ring.view(np.uint8)
    count, at, room = 0, 0, len(received)
    switch, switches = state.first_switch, len(sockets.io)
    for _ in range(switches):
        before = count
        while at + RECEIVE_BYTES <= len(data) and count < room:
            got = receive_datagrams(sockets.io[switch : switch + 1], data, at)
            if got < 0:
                break
            size, start = max(1, sockets.io[switch].segment), 0
            while start == 0 or start < got and count < room:
                datagram = received[count]
                datagram.start = (at + start) >> 2
                datagram.length = min(size, got - start) if start == 0 or size & 3 == 0 else 0  # else no frame
                datagram.switch = switch
                start += size
                count += 1
            stats.bytes_down += got
            at += (got + 7) & ~7
            if count - before >= engine.loss[switch].in_flight:  # what else may be there is not waited for
                break
        switch = (switch + 1) % switches
    state.first_switch = (switch + 1) % switches  # another one first, if there was no room for all
    state.received = count
    state.next_received = 0
    stats.frames_down += count
    stats.bytes_down += count * engine.config[0].encap_bytes
    return count


@kernel()
def frames_together(engine: Engine, switch: int) -> int:
    """Return up to how many frames in a row may leave to a switch in another order.

    Every rank puts others together, and loss detection takes it that all send in one order, give or take GRANULARITY_S:
    so a quarter of what is answered in that time, and of all in flight. None in a collective's first round with blocks:
    how long rounds take says nothing then, where a link lets a burst pass before it slows down.
    """
    smoothed_rtt = engine.path[switch].smoothed_rtt
    if engine.stats[0].rounds <= engine.state[0].slots or not smoothed_rtt > 0:
        return 1
    answered: Any = np.int64(engine.loss[switch].in_flight * min(1.0, GRANULARITY_S / smoothed_rtt) / 4)
    together: int = max(1, answered)
    return together


@kernel()
def put_in_runs(sockets: Sockets, engine: Engine, count: int, together: int) -> int:
    """Put the frames of the first `count` slots in `own` into `vector`; return how many there are.

    Of `together` frames in turn, those with as many blocks are one after the other, so that they can leave in runs.
    """
    config, stats, slots = engine.config[0], engine.stats[0], engine.slots
    own, vector = sockets.own, sockets.vector
    base, room = np.int64(engine.frames.ctypes.data), 4 * engine.frames.shape[1]
    put = 0
    for begin in range(0, count, together):
        end = min(begin + together, count)
        for blocks in range(config.columns, -1, -1):
            size = 4 * (config.header_words + blocks * config.block_words)
            for i in range(begin, end if put < end else begin):
                if slots[own[i].slot].frame_bytes == size:
                    vector[0, put] = base + own[i].slot * room
                    vector[1, put] = size
                    stats.bytes_up += size + config.encap_bytes
                    put += 1
    return put


@kernel(separate=True)
def send_frames(sockets: Sockets, engine: Engine, count: int) -> None:
    """Send the frames of the first `count` slots in `contributions`; what a socket does not take in time is lost."""
    stats, contributions, switches = engine.stats[0], engine.contributions, len(sockets.io)
    stats.frames_up += count
    for switch in range(switches):
        own = 0
        for i in range(count):
            if engine.slots[contributions[i].slot].switch == switch:
                sockets.own[own].slot = contributions[i].slot
                own += 1
        put = put_in_runs(sockets, engine, own, frames_together(engine, switch))
        first, tried = 0, -1
        while first < put:
            first = send(
                sockets.io[switch : switch + 1], sockets.to[switch], sockets.vector[0], sockets.vector[1], first, put
            )
            if first == tried:  # nothing has left for a while: the rest is lost
                break
            if first < put:
                tried = first
                wait(sockets.writable[switch : switch + 1], 50_000)


@kernel()
def _run(sockets: Sockets, engine: Engine, until: float) -> int:
    """Begin the collective, or go on with it; return PAUSE when it is done, or `until` is over.

    Else an event of `receive`, or RELEASE: the frames that waited for slot 0's opening may be taken in now.
    """
    state, path, slots = engine.state[0], engine.path[0], engine.slots
    if state.begins:
        begin_collective(engine, microseconds() * 1e-6)
    while True:
        now = microseconds() * 1e-6
        if state.next_received < state.received:
            event = receive(engine, sockets.ring, sockets.received, now)
            if event != END:
                return event
        if state.early_results and not slots[0].opening:
            return RELEASE
        count = state.contributions
        too_early = False
        if count:
            contribute(engine, now)
            if state.contributions:  # they wait for data of other ranks of this host
                return PAUSE
            send_frames(sockets, engine, count)
            too_early = count == state.open_slots  # nothing else is under way that may have been answered
        else:  # what was received may have ended slots, and shown that others are lost
            set_loss_detection_timers(engine)
        timer_at = next_timer(engine)
        if state.open_slots == 0 or now >= until:
            return PAUSE
        late = now - timer_at  # what has arrived comes first: it may be the answer that the timer misses
        if not too_early and receive_burst(sockets, engine) and late < LONGEST_LATENESS:
            continue
        if late >= 0 and not too_early:
            count = on_loss_detection_timeout(engine, now)
            send_frames(sockets, engine, count)
            continue
        wait_us: Any = np.int64(max(0.0, min(until, timer_at) - now) * 1_000_000) + 1
        began = microseconds()
        ready = sleep(sockets.readable, wait_us) if path.last_wait > LONG_WAIT else wait(sockets.readable, wait_us)
        path.last_wait = (microseconds() - began) * 1e-6
        if ready < 0:
            return PAUSE  # a signal: Python has its handler


run = direct(_run)
