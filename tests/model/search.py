"""All that a network can do to a job: an explicit-state search over the real engine and the real switch program.

A node is one number for each rank's state, one for the switch's, the faults left, and the frames on their way. What
the numbers stand for, and the steps of ranks and switch, are in `parts.py`. The search is breadth-first: the first
trace found is a shortest one.

Any frame on its way may be delivered next. As often as `Faults` allows, the network loses a frame, delivers one and
keeps a copy, or flips a bit; a rank's timer fires while frames are on their way; the switch gets new leases. When
nothing is on its way, the timers of all ranks fire. A frame of a round that is over, which changes nothing, is removed.

Three properties are checked: what ranks hand out (`ranks.py`); that a switch overwrites no version that a rank still
needs; and that the job ends from every node if nothing goes wrong any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from model.calls import Generation
from model.parts import Numbers, Parts, Reached
from model.ranks import BrokenPropertyError, is_before
from model.switch import CompiledSwitch


class Faults(NamedTuple):
    losses: int = 0
    copies: int = 0
    timers: int = 0
    """Timers that fire while frames are on their way."""
    flips: int = 0
    leases: int = 0
    """Number of times that the ranks get new leases."""


class Node(NamedTuple):
    """A state of the job: all numbers but `left` stand for states and frames."""

    ranks: Numbers
    switch: int
    left: Faults
    frames: Numbers
    """The frames on their way, by rising number."""


class Step(NamedTuple):
    """A step of the job. `number`: a frame's or a rank's; `other`: the frame with a flipped bit."""

    kind: str
    number: int = -1
    other: int = -1


class UnendedError(BrokenPropertyError):
    """After some steps a property is broken, or the job has not ended."""

    def __init__(self, what: str, steps: Sequence[Step]) -> None:
        super().__init__(what)
        self.steps = list(steps)


@dataclass
class Report:
    """The counts of a search, and the broken property that it found."""

    nodes: int = 0
    complete: bool = False
    """Whether these are all nodes."""
    rank_states: int = 0
    switch_states: int = 0
    frames: int = 0
    equal_steps: int = 0
    """Steps of ranks that were repeated from another state with the same number, with the same outcome."""
    broken: str = ""
    """The broken property."""
    trace: list[str] = field(default_factory=list)
    """The shortest way to it."""


class Job:
    """The nodes of a job and the steps between them."""

    def __init__(
        self,
        generations: Sequence[Generation],
        faults: Faults,
        make_switch: Callable[[Sequence[Generation]], CompiledSwitch] = CompiledSwitch,
    ) -> None:
        self._faults = faults
        self._parts = Parts(generations, make_switch, flips=faults.flips > 0)
        self._ending: set[Node] = set()
        """Nodes without faults left from which the job ends."""

    def first(self) -> Node:
        """Return the node in which all opening frames are on their way."""
        entered = [self._parts.entered(rank, 0) for rank in range(len(self._parts.ranks))]
        return self._node(entered, self._parts.first_switch(), self._faults)

    def ended(self, node: Node) -> bool:
        """Return whether all ranks are done, in the leases that the switch admits."""
        newest = self._parts.newest(node.switch)
        ranks = zip(self._parts.ranks, node.ranks, strict=True)
        return all(rank.done(state) and rank.generation(state) == newest for rank, state in ranks)

    def steps(self, node: Node) -> Iterator[Step]:
        left = node.left
        for number in dict.fromkeys(node.frames):
            yield Step("deliver", number)
            if left.copies:
                yield Step("copy", number)
            if left.losses:
                yield Step("lose", number)
            if left.flips:
                for other in self._parts.flipped(number):
                    yield Step("flip", number, other)
        newest, ranks = self._parts.newest(node.switch), self._parts.ranks
        late = [rank for rank, state in enumerate(node.ranks) if ranks[rank].generation(state) < newest]
        for rank in late:
            yield Step("enter", rank)
        if not node.frames and not late and not self.ended(node):
            yield Step("timers")
        elif left.timers:
            for rank, state in enumerate(node.ranks):
                if not self._parts.ranks[rank].done(state):
                    yield Step("timer", rank)
        if left.leases:
            yield Step("leases")

    def after(self, node: Node, step: Step) -> Node:
        ranks, switch, left, frames = node
        kind, number, other = step
        if kind == "timers":
            fired = [self._parts.rank_step(rank, state, -1) for rank, state in enumerate(ranks)]
            return self._node(fired, switch, left)
        if kind == "timer":
            left = left._replace(timers=left.timers - 1)
            return self._with_rank(node, number, self._parts.rank_step(number, ranks[number], -1), left, frames)
        if kind == "enter":
            entered = self._parts.entered(number, self._parts.newest(node.switch))
            return self._with_rank(node, number, entered, left, frames)
        if kind == "leases":
            left = left._replace(leases=left.leases - 1)
            return self._joined(ranks, self._parts.renewed(switch), left, frames)
        if kind == "copy":
            return self._delivered(node, number, left._replace(copies=left.copies - 1), frames)
        place = frames.index(number)
        rest = frames[:place] + frames[place + 1 :]
        if kind == "lose":
            return self._joined(ranks, switch, left._replace(losses=left.losses - 1), rest)
        if kind == "flip":
            return self._joined(ranks, switch, left._replace(flips=left.flips - 1), (*rest, other))
        return self._delivered(node, number, left, rest)

    def check_ends(self, node: Node, most: int = 300) -> None:
        """Let all that is on its way arrive, and timers fire, until the job ends. Raises BrokenPropertyError."""
        passed: list[Node] = []
        steps: list[Step] = []
        node = node._replace(left=Faults())
        while not self.ended(node) and node not in self._ending:
            passed.append(node)
            # a rank that has to begin in a new lease does so before anything else
            found = sorted(self.steps(node), key=lambda step: step.kind != "enter")
            if not found or len(passed) == most:
                what = f"the job does not end in {len(passed)} further steps without faults, of which the first follow"
                raise UnendedError(what, steps[:20])
            steps.append(found[0])
            try:
                node = self.after(node, found[0])
            except BrokenPropertyError as error:
                raise UnendedError(str(error), steps) from error
        self._ending.update(passed)

    def finish(self, report: Report) -> None:
        """Repeat steps from equal states, and add to the report how many and how many states the parts had."""
        report.equal_steps = self._parts.check_equal_states()
        report.rank_states, report.switch_states, report.frames = self._parts.counts

    def describe(self, step: Step) -> str:
        if step.kind == "timers":
            return "timers of all ranks fire"
        if step.kind == "leases":
            return "the switch gets the entries of new leases"
        if step.kind == "timer":
            return f"rank {step.number}: a timer fires"
        if step.kind == "enter":
            return f"rank {step.number}: begins in its new lease"
        flipped = f" -> {self._parts.text(step.other)}" if step.kind == "flip" else ""
        return f"{step.kind:8}{self._parts.text(step.number)}{flipped}"

    def _delivered(self, node: Node, number: int, left: Faults, rest: Numbers) -> Node:
        frame = self._parts.frames[number]
        if not frame.up:
            reached = self._parts.rank_step(frame.rank, node.ranks[frame.rank], number)
            return self._with_rank(node, frame.rank, reached, left, rest)
        switch, sent = self._parts.switch_step(node.switch, number)
        self._check_overwritten(node, number)
        return self._joined(node.ranks, switch, left, (*rest, *sent))

    def _check_overwritten(self, node: Node, number: int) -> None:
        for slot, round_ in self._parts.overwritten[node.switch, number]:
            for rank, state in zip(self._parts.ranks, node.ranks, strict=True):
                up_to_date = rank.generation(state) == self._parts.newest(node.switch)
                if up_to_date and not is_before(round_, rank.rounds(state)[slot]):
                    raise BrokenPropertyError(
                        f"the switch overwrote round {round_} of slot {slot}, whose RESULT rank {rank.rank} has not got"
                    )

    # ---- nodes

    def _with_rank(self, node: Node, rank: int, reached: Reached, left: Faults, frames: Numbers) -> Node:
        ranks = (*node.ranks[:rank], reached[0], *node.ranks[rank + 1 :])
        return self._joined(ranks, node.switch, left, (*frames, *reached[1]))

    def _node(self, ranks: Sequence[Reached], switch: int, left: Faults) -> Node:
        frames = tuple(number for _, sent in ranks for number in sent)
        return self._joined(tuple(state for state, _ in ranks), switch, left, frames)

    def _joined(self, ranks: Numbers, switch: int, left: Faults, frames: Numbers) -> Node:
        kept = []
        for number in frames:
            frame = self._parts.frames[number]
            if not self._parts.is_over(number, switch if frame.up else ranks[frame.rank]):
                kept.append(number)
        kept.sort()
        return Node(ranks, switch, left, tuple(kept))


def explore(job: Job, most_nodes: int | None = None) -> Report:
    """Visit all nodes, or so many, until a property is broken."""
    report = Report()
    origins: dict[Node, tuple[Node, Step] | None] = {}
    node, step = job.first(), None
    origins[node] = None
    queue = deque([node])
    try:
        while queue and (most_nodes is None or len(origins) < most_nodes):
            node, step = queue.popleft(), None
            job.check_ends(node)
            for step in job.steps(node):
                after = job.after(node, step)
                if after not in origins:
                    origins[after] = node, step
                    queue.append(after)
        report.complete = not queue
    except BrokenPropertyError as error:
        taken = error.steps if isinstance(error, UnendedError) else []
        if step is not None:
            taken.insert(0, step)
        while (origin := origins[node]) is not None:
            node, before = origin
            taken.insert(0, before)
        report.broken, report.trace = str(error), [job.describe(each) for each in taken]
    report.nodes = len(origins)
    job.finish(report)
    return report
