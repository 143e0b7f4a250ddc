"""The deadline of a collective, why it does not go on, and what to say when it missed its deadline."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from p4reduce.errors import CollectiveTimeoutError
from p4reduce.protocol.call import Call
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.ranks import name_children

IP_UDP_BYTES: Final = 20 + 8
"""Bytes that IPv4 and UDP add to a frame."""
Refused = tuple[int, int, int]
"""Foreign, malformed and stale frames."""


class Deadline:
    """The time at which a call has to be done, by the communicator's clock, and its caller's time limit."""

    __slots__ = ("at", "limit_s")

    def __init__(self, at: float, limit_s: float) -> None:
        self.at, self.limit_s = at, limit_s

    def left_s(self, now: float) -> float:
        """Return the seconds that are left at `now`, at least a millisecond."""
        return max(round(self.at - now, 3), 1e-3)


class OpenSlot(NamedTuple):
    """A slot that does not have its last RESULT."""

    switch: int
    """The number of its switch in the lease."""
    seen: int | None
    """The children that had contributed, as its last PENDING said; None: it had none."""
    level: int
    """The level of the switch that sent it."""
    columns: int
    """The columns that its RESULT will have, as a bitmap."""


class Obstacle(NamedTuple):
    """The reason why a collective does not go on, as far as the answers of the switch say."""

    text: str
    missing_ranks: tuple[int, ...] = ()
    """The ranks that a switch waits for: of a switch below it, all that are behind that one."""


def obstacle(
    lease: Lease, open_slots: Sequence[OpenSlot], longest_result: int, stats: CollectiveStats, refused_before: Refused
) -> Obstacle:
    """Return why a collective does not go on.

    `longest_result`: bytes of the longest RESULT that came. `refused_before`: the refused frames when the last answer
    came that was not refused.
    """
    levels = {(number, i): level for number, it in enumerate(lease.switches) for i, level in enumerate(it.levels)}
    missing, unanswered = dict.fromkeys(levels, 0), []
    for slot in open_slots:
        if slot.seen is None:
            unanswered.append(lease.geometry.lengths[slot.columns])
        else:
            missing[slot.switch, slot.level] |= levels[slot.switch, slot.level].full & ~slot.seen
    if any(missing.values()):
        waiting = [(level, level.behind(missing[place])) for place, level in levels.items() if missing[place]]
        named = lease.depth or len(lease.switches) > 1
        names = [f"switch {level.switch}" if named else "the switch" for level, _ in waiting]
        said = [f"{name} still waits for {name_children(them)}" for name, (_, them) in zip(names, waiting, strict=True)]
        ranks = {rank for _, children in waiting for child in children for rank in child}
        return Obstacle("; ".join(said), tuple(sorted(ranks)))
    where = name_switches(lease, {slot.switch for slot in open_slots})
    refused = [count - before for count, before in zip(refused_frames(stats), refused_before, strict=True)]
    foreign, malformed, stale = refused
    shortest = min(unanswered, default=0)
    if 0 < longest_result < shortest and not foreign and not malformed:
        return Obstacle(
            f"{where} answered frames of up to {longest_result} bytes, and none of {shortest} bytes or "
            f"more: see that every MTU on the path is {shortest + IP_UDP_BYTES} bytes or more (`p4reduce doctor`), and "
            "that the link is not lost"
        )
    if any(refused):
        return Obstacle(
            f"frames came from {where}, and none was of use: {foreign} of another job or epoch, {malformed} malformed "
            f"or not what was agreed, {stale} of a round that is over"
        )
    links = links_above(lease)
    if stats.rounds or stats.pendings:
        return Obstacle(
            f"answers from {where} stopped; look for a lost link, an overloaded switch, or frames "
            f"that it drops (`p4reduce stats`){links and '; see ' + links}"
        )
    further = links and f", and {links}"
    return Obstacle(
        f"{where} answered nothing; see that the switch runs and that the job is active{further}. If `p4reduce "
        "stats` counts STALE drops, its registers hold this epoch of an earlier job: join again, which draws another"
    )


def name_switches(lease: Lease, numbers: Collection[int]) -> str:
    """Return some of a lease's switches as text, with their addresses."""
    if len(lease.switches) == 1:
        return f"the switch at {lease.switches[0].address}"
    return " and ".join(f"switch {lease.switches[n].name} at {lease.switches[n].address}" for n in sorted(numbers))


def links_above(lease: Lease) -> str:
    """Return what has to be true of the links from the rank's own switch up to the root, "" where that is the root."""
    above = ", ".join(level.switch for level in lease.switches[0].levels[1:])
    return f"that its links to {above} carry frames" if above else ""


def too_late(call: Call, timeout_s: float, why: Obstacle) -> CollectiveTimeoutError:
    """Return the error of a collective that was not done after `timeout_s`, or in its caller's time limit."""
    limit_s = call.limit_s or timeout_s
    return CollectiveTimeoutError(f"{call} did not finish in {limit_s:g} s: {why.text}", why.missing_ranks)


def refused_frames(stats: CollectiveStats) -> Refused:
    """Return how many frames came and were of no use."""
    return stats.foreign, stats.malformed, stats.stale
