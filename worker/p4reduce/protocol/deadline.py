"""What to say when a collective missed its deadline."""

from __future__ import annotations

from collections.abc import Iterable

from p4reduce.errors import CollectiveTimeout
from p4reduce.protocol.call import Call
from p4reduce.protocol.slot import SlotState
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.lease import Lease


def too_late(
    call: Call, lease: Lease, slots: Iterable[SlotState], timeout_s: float, stats: CollectiveStats
) -> CollectiveTimeout:
    """The error that names the ranks the switch was still waiting for, as far as its PENDINGs told."""
    missing = 0
    for slot in slots:
        if not slot.done and slot.seen is not None:
            missing |= lease.full & ~slot.seen
    ranks = [rank for rank in range(lease.world_size) if missing >> rank & 1]
    text = f"{call} did not finish in {timeout_s:g} s: "
    if ranks:
        plural = "s" if len(ranks) > 1 else ""
        text += f"the switch still waits for rank{plural} {', '.join(map(str, ranks))}"
    elif stats.rounds or stats.pendings:
        text += "answers from the switch stopped; look for a lost link or an overloaded switch"
    elif stats.malformed or stats.foreign:
        text += (
            f"the answers do not fit this job ({stats.foreign} foreign, {stats.malformed} malformed frames)"
        )
    else:
        where = f"{lease.switch_host}:{lease.switch_port}"
        text += f"the switch at {where} answered nothing; see that it runs and that the job is active"
    return CollectiveTimeout(text, ranks)
