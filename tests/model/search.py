"""All that a network can do to a job: an explicit-state search over the real engine and the real switch program.

A node is one number for each rank's state, one for the switch's, the faults left, and the frames on their way. Ranks
and switch are functions of their own state and of what reaches them, so the code itself computes each of their steps
once, and the search looks it up from then on. The search is breadth-first: the first trace found is a shortest one.

Any frame on its way may be delivered next. As often as `Faults` allows, the network loses a frame, delivers one and
keeps a copy, or flips a bit; a rank's timer fires while frames are on their way; the switch gets new leases. When
nothing is on its way, the timers of all ranks fire. A frame of a round that is over, which changes nothing, is removed.

Of nodes that differ by a permutation of ranks one is visited (`symmetry.py`), if ranks that refuse and the tree of
switches stay as they are, and no bit is flipped: the flipped bits of a sum's words are not those of its image.

Three properties are checked: what ranks hand out (`ranks.py`); that a switch overwrites no version that a rank still
needs; and that the job ends from every node if nothing goes wrong any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, NamedTuple, TypeVar

from model.calls import Generation, Refusal
from model.ranks import BrokenPropertyError, Rank, is_before
from model.switch import CompiledSwitch, Switch
from model.symmetry import Group, Images, NotSymmetricError
from p4reduce_contracts.errors import FrameError
from p4reduce_contracts.wire import CONTRIBUTE, RESULT, SMALL, unpack

Key = TypeVar("Key")
Taken = TypeVar("Taken")
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


class UnendedError(BrokenPropertyError):
    """After some steps a property is broken, or the job has not ended."""

    def __init__(self, what: str, steps: Sequence[Step]) -> None:
        super().__init__(what)
        self.steps = list(steps)


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
    permuted: int = 0
    """How many nodes these are with all permutations of the ranks that leave the job as it is."""
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


def refusing(generations: Sequence[Generation]) -> set[int]:
    """Return the ranks that refuse a collective. Others call the same, and are in every round, whatever they hold."""
    calls = (call for generation in generations for call in generation.calls)
    return {call.rank for call in calls if isinstance(call, Refusal)}


class Job:
    """The nodes of a job and the steps between them."""

    def __init__(
        self,
        generations: Sequence[Generation],
        faults: Faults,
        make_switch: Callable[[Sequence[Generation]], Switch] = CompiledSwitch,
        *,
        symmetry: bool = True,
    ) -> None:
        """`symmetry`: visit one of the nodes that differ by a permutation of ranks."""
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
        self._entries: dict[tuple[int, int], Reached] = {}
        self._renewals: dict[int, int] = {}
        self._over: dict[tuple[int, int], bool] = {}
        self._flips: dict[int, Numbers] = {}
        self._ending: set[Node] = set()
        """Nodes without faults left from which the job ends."""
        ranks = range(len(self._ranks))
        places = {tuple(ranks): self._switch.image(ranks)}
        if symmetry and not faults.flips:
            fixed = refusing(generations)
            kept = [order for order in permutations(ranks) if all(order[rank] == rank for rank in fixed)]
            places |= {order: self._switch.image(order) for order in kept}
        self._group = Group([order for order, image in places.items() if image is not None])
        self._places = [places[permutation] or {} for permutation in self._group.permutations]
        """By permutation: which rank or link comes in the place of each."""
        self._rank_images = Images(self._group, self._moved, self._read_of_rank)
        self._switch_images = Images(self._group, lambda _: (0,) * len(self._group), self._read_of_switch)
        self._frame_images = Images(self._group, lambda _: (0,) * len(self._group), self._read_of_frame)
        self._least: dict[Numbers, tuple[Numbers, Numbers]] = {}
        """By the ranks' states: the least of their images, and the permutations that lead to it."""

    def first(self) -> Node:
        """Return the node in which all opening frames are on their way."""
        entered = [self._entered(rank, 0) for rank in range(len(self._ranks))]
        switch = self._switch_number(self._switch.begin(0))
        self._switch_images.put(0, (switch,) * len(self._group))
        return self._node(entered, switch, self._faults)

    @property
    def permutations(self) -> list[Numbers]:
        """Return the permutations of the ranks that leave the job as it is."""
        return self._group.permutations

    def canonical(self, node: Node) -> tuple[Node, int]:
        """Return the least of a node's images, the same for all of them, and how many there are."""
        if len(self._group) == 1:
            return node, 1
        least = self._least.get(node.ranks)
        if least is None:
            least = self._least[node.ranks] = self._find_least(node.ranks)
        ranks, ways = least
        switches, images = self._switch_images.of(0, node.switch), [self._frame_images.of(0, n) for n in node.frames]
        found = [(switches[way], tuple(sorted([image[way] for image in images]))) for way in ways]
        switch, frames = min(found)
        return Node(ranks, switch, node.left, frames), len(self._group) // found.count((switch, frames))

    def for_node(self, steps: Sequence[Step], node: Node) -> list[Step]:
        """Return steps from canonical(node) as steps from the node."""
        canonical, _ = self.canonical(node)
        for way, back in enumerate(self._group.inverses):
            if self._image(node, way) == canonical:
                return [self._step_image(step, back) for step in steps]
        raise AssertionError("the canonical node is an image")

    def _image(self, node: Node, way: int) -> Node:
        """Return a node's image under one of the group's permutations."""
        frames = sorted(self._frame_images.of(0, number)[way] for number in node.frames)
        switch = self._switch_images.of(0, node.switch)[way]
        return Node(self._image_of_ranks(node.ranks, way), switch, node.left, tuple(frames))

    def _image_of_ranks(self, ranks: Numbers, way: int) -> Numbers:
        image = list(ranks)
        for rank, state in enumerate(ranks):
            image[self._group.permutations[way][rank]] = self._rank_images.of(rank, state)[way]
        return tuple(image)

    def _step_image(self, step: Step, way: int) -> Step:
        if step.number < 0 or len(self._group) == 1:
            return step
        if step.kind in ("timer", "enter"):
            return step._replace(number=self._group.permutations[way][step.number])
        return step._replace(number=self._frame_images.of(0, step.number)[way])

    def _find_least(self, ranks: Numbers) -> tuple[Numbers, Numbers]:
        images = [self._image_of_ranks(ranks, way) for way in range(len(self._group))]
        least = min(images)
        return least, tuple(way for way, image in enumerate(images) if image == least)

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
            return self._with_rank(node, number, self._entered(number, self._newest(node)), left, frames)
        if kind == "leases":
            left = left._replace(leases=left.leases - 1)
            return self._joined(ranks, self._renewed(switch), left, frames)
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
        while not self.ended(node) and (canonical := self.canonical(node)[0]) not in self._ending:
            passed.append(canonical)
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

    # ---- the parts' steps, each computed once, together with its images

    def _delivered(self, node: Node, number: int, left: Faults, rest: Numbers) -> Node:
        frame = self._frames[number]
        if not frame.up:
            reached = self._rank_step(frame.rank, node.ranks[frame.rank], number)
            return self._with_rank(node, frame.rank, reached, left, rest)
        switch, sent = self._switch_step(node.switch, number)
        self._check_overwritten(node, number)
        return self._joined(node.ranks, switch, left, (*rest, *sent))

    def _entered(self, rank: int, generation: int) -> Reached:
        reached = self._entries.get((rank, generation))
        if reached is None:
            found = [self._sent(image, self._ranks[image].enter(generation)) for image in self._moved(rank)]
            self._put_rank_images(rank, found)
            reached = self._entries[rank, generation] = found[0]
        return reached

    def _fire(self, rank: int, state: int) -> Reached:
        return self._rank_step(rank, state, -1)

    def _rank_step(self, rank: int, state: int, number: int) -> Reached:
        reached = self._rank_steps.get((rank, state, number))
        if reached is None:
            frames = self._frame_images.of(0, number) if number >= 0 else (-1,) * len(self._group)
            keys = list(zip(self._moved(rank), self._rank_images.of(rank, state), frames, strict=True))
            found = _taken(self._take_rank_step, keys)
            self._put_rank_images(rank, found)
            self._rank_steps.update(zip(keys, found, strict=True))
            reached = found[0]
        return reached

    def _take_rank_step(self, key: tuple[int, int, int]) -> Reached:
        rank, state, number = key
        found = self._ranks[rank]
        return self._sent(
            rank, found.fire_timer(state) if number < 0 else found.receive(state, self._frames[number].payload)
        )

    def _renewed(self, state: int) -> int:
        renewed = self._renewals.get(state)
        if renewed is None:
            states = self._switch_images.of(0, state)
            found = tuple(self._switch_number(self._switch.renew(self._switch_states[image])) for image in states)
            self._switch_images.put(0, found)
            renewed = self._renewals[state] = found[0]
        return renewed

    def _switch_step(self, state: int, number: int) -> Reached:
        reached = self._switch_steps.get((state, number))
        if reached is None:
            keys = list(zip(self._switch_images.of(0, state), self._frame_images.of(0, number), strict=True))
            found = _taken(self._take_switch_step, keys)
            self._switch_images.put(0, tuple(after for after, _, _ in found))
            sent = [
                self._in_order(found[0][1], images, places)
                for (_, images, _), places in zip(found, self._places, strict=True)
            ]
            for images in zip(*sent, strict=True):
                self._frame_images.put(0, images)
            if any(overwritten != found[0][2] for _, _, overwritten in found):
                raise NotSymmetricError("the switch overwrites other rounds")
            for key, (after, out, overwritten) in zip(keys, found, strict=True):
                self._switch_steps[key], self._overwritten[key] = (after, out), overwritten
            reached = self._switch_steps[state, number]
        return reached

    def _take_switch_step(self, key: tuple[int, int]) -> tuple[int, Numbers, list[tuple[int, int]]]:
        """Return the switch's state, the frames that it sent, and the slots, and their rounds, that it overwrote."""
        state, number = key
        frame, before = self._frames[number], self._switch_states[state]
        after, out = self._switch.process(before, frame.rank, frame.payload)
        sent = tuple(self._frame_number(InFlight(to, to < 0, payload)) for to, payload in out)
        old, new = self._switch.rounds(before), self._switch.rounds(after)
        overwritten = [
            (version >> 1, round_)
            for (switch, version), round_ in old.items()
            if round_ is not None and new[switch, version] != round_
        ]
        return self._switch_number(after), sent, overwritten

    # ---- images

    def _moved(self, rank: int) -> Numbers:
        """Return, by permutation, the rank in whose place one comes."""
        return tuple(permutation[rank] for permutation in self._group.permutations)

    def _put_rank_images(self, rank: int, found: Sequence[Reached]) -> None:
        self._rank_images.put(rank, tuple(state for state, _ in found))
        if any(len(sent) != len(found[0][1]) for _, sent in found):
            raise NotSymmetricError(f"another rank than {rank} sends more or fewer frames")
        for images in zip(*(sent for _, sent in found), strict=True):
            self._frame_images.put(0, images)

    def _in_order(self, sent: Numbers, images: Numbers, places: Mapping[int, int]) -> list[int]:
        """Return the images of frames that a switch sent, each beside its own: what goes to the place of its rank."""
        left, found = list(images), []
        for number in sent:
            to = places[self._frames[number].rank]
            image = next((image for image in left if self._frames[image].rank == to), None)
            if image is None:
                raise NotSymmetricError(f"the switch sends nothing to {to}")
            left.remove(image)
            found.append(image)
        if left:
            raise NotSymmetricError("the switch sends more frames")
        return found

    def _read_of_rank(self, rank: int, state: int) -> object:
        found = self._ranks[rank]
        return found.done(state), found.generation(state), found.rounds(state)

    def _read_of_switch(self, _: int, state: int) -> object:
        return self._switch_states[state][0]

    def _read_of_frame(self, _: int, number: int) -> object:
        frame = self._frames[number]
        header = unpack(SMALL, frame.payload)
        return frame.up, header.type, header.slot, header.round

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
            states = self._switch_images.of(0, state) if frame.up else self._rank_images.of(frame.rank, state)
            keys = list(zip(self._frame_images.of(0, number), states, strict=True))
            found = {self._find_over(*key) for key in keys}
            if len(found) != 1:
                raise NotSymmetricError("a frame is of a round that is over, and its image is not")
            (over,) = found
            self._over.update(dict.fromkeys(keys, over))
        return over

    def _find_over(self, number: int, state: int) -> bool:
        frame = self._frames[number]
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


def _taken(take: Callable[[Key], Taken], keys: Sequence[Key]) -> list[Taken]:
    """Take a step and its images. Raises NotSymmetricError if only an image breaks a property."""
    found = [take(keys[0])]
    try:
        found += [take(key) for key in keys[1:]]
    except BrokenPropertyError as error:
        raise NotSymmetricError(f"an image breaks a property: {error}") from error
    return found


def explore(job: Job, most_nodes: int | None = None) -> Report:
    """Visit all nodes, or so many, until a property is broken."""
    report = Report()
    origins: dict[Node, tuple[Node, Step] | None] = {}
    node, step = job.first(), None
    origins[node], report.permuted = None, 1
    queue = deque([node])
    try:
        while queue and (most_nodes is None or len(origins) < most_nodes):
            node, step = queue.popleft(), None
            job.check_ends(node)
            for step in job.steps(node):
                after, images = job.canonical(job.after(node, step))
                if after not in origins:
                    origins[after] = node, step
                    report.permuted += images
                    queue.append(after)
        report.complete = not queue
    except BrokenPropertyError as error:
        taken = [] if step is None else [step]
        further = error.steps if isinstance(error, UnendedError) else []
        while (origin := origins[node]) is not None:
            node, before = origin
            taken.insert(0, before)
        broken, report.trace = _trace(job, taken, further)
        report.broken = broken or str(error)
    report.nodes = len(origins)
    report.equal_steps = job.check_equal_states()
    job.count_into(report)
    return report


def _trace(job: Job, steps: Sequence[Step], further: Sequence[Step]) -> tuple[str, list[str]]:
    """Take steps between canonical nodes, and `further` ones from the last, from the first node on.

    Return the property that they break, "" if none, and the steps in words.
    """
    node, words = job.first(), []
    try:
        for step in steps:
            (own,) = job.for_node([step], node)
            words.append(job.describe(own))
            node = job.after(node, own)
        for step in job.for_node(further, node):
            words.append(job.describe(step))
            node = job.after(node, step)
    except BrokenPropertyError as error:
        return str(error), words
    return "", words
