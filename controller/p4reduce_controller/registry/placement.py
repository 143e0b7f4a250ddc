"""The grants of a job: what each of its switches must hold for it, by the places of its ranks and the links."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping

from p4reduce_contracts.jobs.lease import Level
from p4reduce_contracts.ranks import name_ranks
from p4reduce_contracts.wire.numbers import MAX_SLOTS
from p4reduce_controller.registry.job import Child, Grant, Job, Parent
from p4reduce_controller.registry.links import Link, Links
from p4reduce_controller.registry.tree import PlacementError, Tree

_LAST_ROUND = (1 << 32) - 1


def choose(job: Job, tree: Tree, away: Container[str]) -> tuple[str, ...]:
    """Return the switches side by side that a job takes, in the order of its lease; () where its ranks use none.

    They are its share of those that are not `away`: jobs differ in the first, which has slot 0. All its slots together
    are at most `MAX_SLOTS`, for which a call's description has room. Raises PlacementError.
    """
    check_targets(job, tree)
    if not tree.side_by_side or all(member.target for member in job.members.values()):
        return ()
    fitting = [name for name in tree.side_by_side if tree.switches[name].max_children >= job.world_size]
    if not fitting:
        raise PlacementError(
            f"{job.world_size} ranks are more than any of the switches {', '.join(tree.side_by_side)} takes"
        )
    there = [name for name in fitting if name not in away]
    if not there:
        raise PlacementError(f"none of the switches {', '.join(fitting)} can be used now")
    first = job.id % len(there)
    return (*there[first:], *there[:first])[: min(job.switches or len(there), MAX_SLOTS // job.slots.count)]


def check_targets(job: Job, tree: Tree) -> None:
    """Raise PlacementError where some of its connected ranks name a switch, and others use those side by side."""
    connected = [member for _, member in sorted(job.members.items()) if member.disconnected_at is None]
    named = [member.rank for member in connected if member.target]
    if tree.side_by_side and 0 < len(named) < len(connected):
        raise PlacementError(
            f"a switch was named (P4REDUCE_SWITCH, or join(switch=...)) for {name_ranks(named)} of job {job.name}, and "
            "the other ranks use those side by side: name one for all ranks, or for none"
        )


def place(job: Job, chosen: Collection[str], tree: Tree, links: Links) -> dict[str, Level]:
    """Return the switches that sum for a job whose ranks have all sent their HELLO, by name, the root first.

    `chosen` is what `choose` returned. Raises PlacementError, also for a link that is not known.
    """
    if chosen:
        ranks = tuple((rank,) for rank in range(job.world_size))
        return {name: Level(name, ranks) for name in chosen}
    levels = tree.place({rank: next(iter(job.members[rank].addresses)) for rank in range(job.world_size)})
    problems = [links.problem(level.switch) for level in levels.values() if level.parent is not None]
    if known := [problem for problem in problems if problem is not None]:
        raise PlacementError("; ".join(known))
    return levels


def make_grants(
    job: Job, epoch: int, levels: Mapping[str, Level], links: Links, draw_secret: Callable[[], int]
) -> dict[str, Grant]:
    """Return the grants of the switches of `levels`, as `place` returned them, with new secrets and a first round."""
    first_round = 1 + draw_secret() % _LAST_ROUND
    below = {(level.parent, level.ranks): level.switch for level in levels.values()}
    grants: dict[str, Grant] = {}
    for name, level in levels.items():
        children = []
        for ranks in level.children:
            switch = below.get((name, ranks), "")
            address = _known_link(links, switch).child if switch else job.members[ranks[0]].addresses[name]
            children.append(Child(address, draw_secret(), ranks, switch))
        parent = None
        if level.parent is not None:
            secret = _child(grants[level.parent], name).secret
            parent = Parent(level.parent, _known_link(links, name).parent, secret)
        grants[name] = Grant(job.id, job.name, epoch, job.slots, tuple(children), parent, name, first_round)
    return grants


def used_link(job: Job, switch: str) -> Link | None:
    """Return the link of a switch to its parent as the job's grants have it, None where they have none."""
    if switch not in job.grants or (parent := job.grants[switch].parent) is None:
        return None
    return Link(_child(job.grants[parent.switch], switch).address, parent.address)


def _child(grant: Grant, switch: str) -> Child:
    return next(child for child in grant.children if child.switch == switch)


def _known_link(links: Links, switch: str) -> Link:
    link = links.link(switch)
    assert link is not None, "every link of a job is known"
    return link
