"""All that a network can do to a job: an explicit-state search over the real engine and the real switch program.

A node is one number for each rank's state, one for the switch's, the faults left, and the frames on their way. Ranks
and switch are functions of their own state and of what reaches them, so the code itself computes each of their steps
once, and the search looks it up from then on. The search is breadth-first: the first trace found is a shortest one.

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
from typing import Any, NamedTuple

from model.calls import Generation
from model.ranks import BrokenPropertyError, Rank, is_before
from model.switch import CompiledSwitch, Switch
from p4reduce_contracts.errors import FrameError
from p4reduce_contracts.wire import CONTRIBUTE, RESULT, SMALL, unpack

Numbers = tuple[int, ...]
Reached = tuple[int, Numbers]
"""A part's state after a step, and the frames that it sent."""


class Faults(NamedTuple):
    """How often each may happen."""

    losses: int = 0
    copies: int = 0
    timers: int = 0
    """Timers that fire while frames are on their way."""
    flips: int = 0
    leases: int = 0
    """How often the ranks get new leases."""


class Node(NamedTuple):
    """A state of the job: all numbers but `left` stand for states and frames."""

    ranks: Numbers
    switch: int
    left: Faults
    frames: Numbers
    """On their way, in rising order."""


class Step(NamedTuple):
    """What happens next. `number`: of a frame or a rank; `other`: what a flipped bit makes of the frame."""

    kind: str
    number: int = -1
    other: int = -1


@dataclass(frozen=True)
class InFlight:
    """A frame on its way between a rank and its switch, or (`up`, with a `rank` below 0) over a link to a switch."""

    rank: int
    up: bool
    payload: bytes


@dataclass
class Report:
    """What a search visited, and what it found."""

    nodes: int = 0
    complete: bool = False
    """Whether that is all."""
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
        make_switch: Callable[[Sequence[Generation]], Switch] = CompiledSwitch,
    ) -> None:
        self._generations = generations
        self._faults = faults
        self._ranks = [Rank(rank, generations, may_fail=faults.flips > 0) for rank in range(len(generations[0].leases))]
        self._switch = make_switch(generations)
        self._switch_states: list[Any] = []
        self._switch_numbers: dict[Any, int] = {}
        self._frames: list[InFlight] = []
        self._frame_numbers: dict[InFlight, int] = {}
        self._rank_steps: dict[tuple[int, int, int], Reached] = {}
        self._switch_steps: dict[tuple[int, int], Reached] = {}
        self._overwritten: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """By step of the switch: the slots, and their rounds, that it overwrote."""
        self._over: dict[tuple[int, int], bool] = {}
        self._flips: dict[int, Numbers] = {}
        self._ending: set[Node] = set()
        """Nodes without faults left from which the job ends."""

    def first(self) -> Node:
        """Return the node in which all opening frames are on their way."""
        entered = [self._sent(rank, found.enter(0)) for rank, found in enumerate(self._ranks)]
        return self._node(entered, self._switch_number(self._switch.begin(0)), self._faults)

    def ended(self, node: Node) -> bool:
        """Return whether all ranks are done, in the leases that the switch admits."""
        newest = self._newest(node)
        ranks = zip(self._ranks, node.ranks, strict=True)
        return all(rank.done(state) and rank.generation(state) == newest for rank, state in ranks)

    def steps(self, node: Node) -> Iterator[Step]:
        """Return what can happen next."""
        left = node.left
        for number in dict.fromkeys(node.frames):
            yield Step("deliver", number)
            if left.copies:
                yield Step("copy", number)
            if left.losses:
                yield Step("lose", number)
            if left.flips:
                for other in self._with_flipped_bits(number):
                    yield Step("flip", number, other)
        late = [
            rank for rank, state in enumerate(node.ranks) if self._ranks[rank].generation(state) < self._newest(node)
        ]
        for rank in late:
            yield Step("enter", rank)
        if not node.frames and not late and not self.ended(node):
            yield Step("timers")
        elif left.timers:
            for rank, state in enumerate(node.ranks):
                if not self._ranks[rank].done(state):
                    yield Step("timer", rank)
        if left.leases:
            yield Step("leases")

    def after(self, node: Node, step: Step) -> Node:
        """Return the node after a step. Raises BrokenPropertyError."""
        ranks, switch, left, frames = node
        kind, number, other = step
        if kind == "timers":
            return self._node([self._fire(rank, state) for rank, state in enumerate(ranks)], switch, left)
        if kind == "timer":
            left = left._replace(timers=left.timers - 1)
            return self._with_rank(node, number, self._fire(number, ranks[number]), left, frames)
        if kind == "enter":
            entered = self._sent(number, self._ranks[number].enter(self._newest(node)))
            return self._with_rank(node, number, entered, left, frames)
        if kind == "leases":
            fresh = self._switch.renew(self._switch_states[switch])
            left = left._replace(leases=left.leases - 1)
            return self._joined(ranks, self._switch_number(fresh), left, frames)
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
        steps: list[str] = []
        node = node._replace(left=Faults())
        while node not in self._ending and not self.ended(node):
            passed.append(node)
            # a rank that has to begin in a new lease does so before anything else
            found = sorted(self.steps(node), key=lambda step: step.kind != "enter")
            if not found or len(passed) == most:
                what = f"the job does not end in {len(passed)} further steps without faults, of which the first follow"
                raise BrokenPropertyError(what, steps[:20])
            steps.append(self.describe(found[0]))
            try:
                node = self.after(node, found[0])
            except BrokenPropertyError as error:
                raise BrokenPropertyError(str(error), steps) from error
        self._ending.update(passed)

    def describe(self, step: Step) -> str:
        """Return a step in words."""
        if step.kind == "timers":
            return "timers of all ranks fire"
        if step.kind == "leases":
            return "the switch gets the entries of new leases"
        if step.kind == "timer":
            return f"rank {step.number}: a timer fires"
        if step.kind == "enter":
            return f"rank {step.number}: begins in its new lease"
        flipped = f" -> {self._text(step.other)}" if step.kind == "flip" else ""
        return f"{step.kind:8}{self._text(step.number)}{flipped}"

    def check_equal_states(self) -> int:
        """Repeat the ranks' steps from other states that have the same number; return how many.

        AssertionError where they differ: then `ranks.py` leaves something out of a state that it must not.
        """
        repeated = 0
        for (rank, state, number), (after, sent) in list(self._rank_steps.items()):
            reached = after, [self._frames[frame].payload for frame in sent]
            frame = None if number < 0 else self._frames[number].payload
            repeated += self._ranks[rank].check_equal(state, frame, reached)
        return repeated

    def count_into(self, report: Report) -> None:
        """Add how many states the parts had."""
        report.rank_states = sum(rank.count for rank in self._ranks)
        report.switch_states, report.frames = len(self._switch_states), len(self._frames)

    # ---- the parts' steps, each computed once

    def _delivered(self, node: Node, number: int, left: Faults, rest: Numbers) -> Node:
        frame = self._frames[number]
        if not frame.up:
            reached = self._rank_step(frame.rank, node.ranks[frame.rank], number)
            return self._with_rank(node, frame.rank, reached, left, rest)
        switch, sent = self._switch_step(node.switch, number)
        self._check_overwritten(node, number)
        return self._joined(node.ranks, switch, left, (*rest, *sent))

    def _rank_step(self, rank: int, state: int, number: int) -> Reached:
        key = rank, state, number
        reached = self._rank_steps.get(key)
        if reached is None:
            taken_in = self._ranks[rank].receive(state, self._frames[number].payload)
            reached = self._rank_steps[key] = self._sent(rank, taken_in)
        return reached

    def _fire(self, rank: int, state: int) -> Reached:
        key = rank, state, -1
        reached = self._rank_steps.get(key)
        if reached is None:
            reached = self._rank_steps[key] = self._sent(rank, self._ranks[rank].fire_timer(state))
        return reached

    def _switch_step(self, state: int, number: int) -> Reached:
        key = state, number
        reached = self._switch_steps.get(key)
        if reached is None:
            frame, before = self._frames[number], self._switch_states[state]
            after, out = self._switch.process(before, frame.rank, frame.payload)
            sent = tuple(self._frame_number(InFlight(to, to < 0, payload)) for to, payload in out)
            reached = self._switch_steps[key] = self._switch_number(after), sent
            old, new = self._switch.rounds(before), self._switch.rounds(after)
            self._overwritten[key] = [
                (version >> 1, round_)
                for (switch, version), round_ in old.items()
                if round_ is not None and new[switch, version] != round_
            ]
        return reached

    def _sent(self, rank: int, reached: tuple[int, Sequence[bytes]]) -> Reached:
        state, payloads = reached
        return state, tuple(self._frame_number(InFlight(rank, True, payload)) for payload in payloads)

    def _check_overwritten(self, node: Node, number: int) -> None:
        for slot, round_ in self._overwritten[node.switch, number]:
            for rank, state in zip(self._ranks, node.ranks, strict=True):
                if rank.generation(state) == self._newest(node) and not is_before(round_, rank.rounds(state)[slot]):
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
        kept = [number for number in frames if not self._is_over(number, ranks, switch)]
        kept.sort()
        return Node(ranks, switch, left, tuple(kept))

    def _is_over(self, number: int, ranks: Numbers, switch: int) -> bool:
        """Return whether a frame changes nothing, and never will, since its round is over."""
        frame = self._frames[number]
        state = switch if frame.up else ranks[frame.rank]
        over = self._over.get((number, state))
        if over is None:
            over = self._over[number, state] = self._find_over(frame, number, state)
        return over

    def _find_over(self, frame: InFlight, number: int, state: int) -> bool:
        try:
            header = unpack(SMALL, frame.payload)
            reached = self._switch_step(state, number) if frame.up else self._rank_step(frame.rank, state, number)
        except (FrameError, BrokenPropertyError):
            return False
        if reached != (state, ()):
            return False
        if frame.up:
            version = self._switch.at(frame.rank), header.slot << 1 | header.round & 1
            round_ = self._switch.rounds(self._switch_states[state]).get(version)
            return round_ is not None and is_before(header.round, round_)
        rank = self._ranks[frame.rank]
        if rank.done(state):
            return rank.generation(state) == len(self._generations) - 1
        return is_before(header.round, rank.rounds(state)[header.slot])

    def _newest(self, node: Node) -> int:
        generation: int = self._switch_states[node.switch][0]
        return generation

    def _frame_number(self, frame: InFlight) -> int:
        number = self._frame_numbers.get(frame)
        if number is None:
            number = self._frame_numbers[frame] = len(self._frames)
            self._frames.append(frame)
        return number

    def _switch_number(self, state: Any) -> int:
        number = self._switch_numbers.get(state)
        if number is None:
            number = self._switch_numbers[state] = len(self._switch_states)
            self._switch_states.append(state)
        return number

    def _with_flipped_bits(self, number: int) -> Numbers:
        """Return the frame with a bit of every field flipped, and with two bits of every block."""
        found = self._flips.get(number)
        if found is None:
            frame = self._frames[number]
            header = (0, 1, 2, 4, 6, 11, 15, 16, 27, 28, *range(32, SMALL.frame_header_bytes, 4))
            blocks = range(SMALL.frame_header_bytes, len(frame.payload), SMALL.block_bytes)
            bits = [8 * byte + 7 for byte in header] + [8 * byte + bit for byte in blocks for bit in (0, 30)]
            found = self._flips[number] = tuple(
                self._frame_number(InFlight(frame.rank, frame.up, _with_flipped_bit(frame.payload, bit)))
                for bit in bits
            )
        return found

    def _text(self, number: int) -> str:
        frame = self._frames[number]
        way = f"rank {frame.rank} to switch" if frame.up else f"switch to rank {frame.rank}"
        if frame.rank < 0:
            way = f"link {~frame.rank} to switch {self._switch.at(frame.rank)}"
        try:
            header = unpack(SMALL, frame.payload)
        except FrameError as error:
            return f"{way}: damaged ({error.reason})"
        kind = {CONTRIBUTE: "CONTRIBUTE", RESULT: "RESULT"}.get(header.type, "PENDING")
        columns = [column for column in range(SMALL.columns) if header.present >> column & 1]
        leases = [generation.leases[max(0, frame.rank)] for generation in self._generations]
        lease = [number for number, lease in enumerate(leases) if lease.secret == header.secret]
        where = f"slot {header.slot} round {header.round} columns {columns}"
        return f"{way}: {kind} {where}" + (f" of lease {lease}" if len(leases) > 1 else "")


def _with_flipped_bit(payload: bytes, bit: int) -> bytes:
    changed = bytearray(payload)
    changed[bit >> 3] ^= 0x80 >> (bit & 7)
    return bytes(changed)


def explore(job: Job, most_nodes: int | None = None) -> Report:
    """Visit all nodes, or so many, until a property is broken."""
    report = Report()
    origins: dict[Node, tuple[Node, Step] | None] = {}
    node, step, further = job.first(), None, []
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
        report.broken, further = str(error), error.steps
        taken = [] if step is None else [step]
        while (origin := origins[node]) is not None:
            node, before = origin
            taken.insert(0, before)
        report.trace = [*map(job.describe, taken), *further]
    report.nodes = len(origins)
    report.equal_steps = job.check_equal_states()
    job.count_into(report)
    return report
