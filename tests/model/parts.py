"""The ranks, the switch and the frames of a job that is searched: their states by number, and the steps between these.

Ranks and switch are functions of their own state and of what reaches them, so the code itself computes each of their
steps once, together with its images (`symmetry.py`), and the search looks it up from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Generic, TypeVar

from model.calls import Generation, Refusal
from model.ranks import BrokenPropertyError, Rank, is_before
from model.switch import CompiledSwitch
from model.symmetry import Group, Images, NotSymmetricError
from p4reduce.protocol.datagram import switch_of
from p4reduce_contracts.errors import FrameError
from p4reduce_contracts.wire import CONTRIBUTE, RESULT, SMALL, unpack

Key = TypeVar("Key")
Taken = TypeVar("Taken")
Value = TypeVar("Value")
Numbers = tuple[int, ...]
Reached = tuple[int, Numbers]
"""A part's state after a step, and the frames that it sent."""


@dataclass(frozen=True)
class InFlight:
    """A frame on its way between a rank and its switch, or (`up`, with a `rank` below 0) over a link to a switch."""

    rank: int
    up: bool
    payload: bytes
    switch: int
    """The switch side by side that it goes to or comes from."""

    @classmethod
    def of(cls, rank: int, up: bool, payload: bytes) -> InFlight:
        """Return a frame whose payload says its switch."""
        return cls(rank, up, payload, switch_of(payload))


def refusing(generations: Sequence[Generation]) -> set[int]:
    """Return the ranks that refuse a collective. Others call the same, and are in every round, whatever they hold."""
    calls = (call for generation in generations for call in generation.calls)
    return {call.rank for call in calls if isinstance(call, Refusal)}


class Numbered(Generic[Value]):
    """Values by number, in the order in which they were first met; equal ones have one number."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._numbers: dict[Value, int] = {}

    def number(self, value: Value) -> int:
        """Return a value's number, a new one for a new value."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class Parts:
    """All states that the ranks and the switch have been in, and all frames that they have sent."""

    def __init__(
        self,
        generations: Sequence[Generation],
        make_switch: Callable[[Sequence[Generation]], CompiledSwitch],
        *,
        flips: bool,
        symmetry: bool,
    ) -> None:
        """`flips`: bits of frames may be flipped, so that collectives may fail. `symmetry`: permute the ranks."""
        self._generations = generations
        self.ranks = [Rank(rank, generations, may_fail=flips) for rank in range(len(generations[0].leases))]
        self._switch = make_switch(generations)
        self._numbered_states, self._numbered_frames = Numbered[Any](), Numbered[InFlight]()
        self._switch_states, self.frames = self._numbered_states.values, self._numbered_frames.values
        self._rank_steps: dict[tuple[int, int, int], Reached] = {}
        self._switch_steps: dict[tuple[int, int], Reached] = {}
        self.overwritten: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """Step of the switch -> the slots, and their rounds, that it overwrote."""
        self._entries: dict[tuple[int, int], Reached] = {}
        self._renewals: dict[int, int] = {}
        self._over: dict[tuple[int, int], bool] = {}
        self._flips: dict[int, Numbers] = {}
        ranks = range(len(self.ranks))
        places = {tuple(ranks): self._switch.image(ranks)}
        if symmetry and not flips:
            fixed = refusing(generations)
            kept = [order for order in permutations(ranks) if all(order[rank] == rank for rank in fixed)]
            places |= {order: self._switch.image(order) for order in kept}
        self.group = Group([order for order, image in places.items() if image is not None])
        """The permutations of the ranks that leave the job as it is."""
        self._places = [places[permutation] or {} for permutation in self.group.permutations]
        """Permutation -> the rank or link that comes in the place of each."""
        self.rank_images = Images(self.group, self._moved, self._read_of_rank)
        self.switch_images = Images(self.group, lambda _: (0,) * len(self.group), self._read_of_switch)
        self.frame_images = Images(self.group, lambda _: (0,) * len(self.group), self._read_of_frame)

    def first_switch(self) -> int:
        """Return the state of the switch before the first frame."""
        switch = self._numbered_states.number(self._switch.begin(0))
        self.switch_images.put(0, (switch,) * len(self.group))
        return switch

    def newest(self, switch: int) -> int:
        """Return the generation of leases that the switch admits, in one of its states."""
        generation: int = self._switch_states[switch][0]
        return generation

    def entered(self, rank: int, generation: int) -> Reached:
        """Return what a rank is and sends when it begins in new leases."""
        reached = self._entries.get((rank, generation))
        if reached is None:
            found = [self._sent(image, self.ranks[image].enter(generation)) for image in self._moved(rank)]
            self._put_rank_images(rank, found)
            reached = self._entries[rank, generation] = found[0]
        return reached

    def rank_step(self, rank: int, state: int, number: int) -> Reached:
        """Let a rank take in a frame; below 0: let its timer fire. Raises BrokenPropertyError."""
        reached = self._rank_steps.get((rank, state, number))
        if reached is None:
            frames = self.frame_images.of(0, number) if number >= 0 else (-1,) * len(self.group)
            keys = list(zip(self._moved(rank), self.rank_images.of(rank, state), frames, strict=True))
            found = _taken(self._take_rank_step, keys)
            self._put_rank_images(rank, found)
            self._rank_steps.update(zip(keys, found, strict=True))
            reached = found[0]
        return reached

    def _take_rank_step(self, key: tuple[int, int, int]) -> Reached:
        rank, state, number = key
        return self._sent(rank, self.ranks[rank].step(state, self._payload(number)))

    def renewed(self, state: int) -> int:
        """Return the switch's state with the entries of new leases."""
        renewed = self._renewals.get(state)
        if renewed is None:
            states = self.switch_images.of(0, state)
            found = tuple(
                self._numbered_states.number(self._switch.renew(self._switch_states[image])) for image in states
            )
            self.switch_images.put(0, found)
            renewed = self._renewals[state] = found[0]
        return renewed

    def switch_step(self, state: int, number: int) -> Reached:
        """Let the switch process a frame."""
        reached = self._switch_steps.get((state, number))
        if reached is None:
            keys = list(zip(self.switch_images.of(0, state), self.frame_images.of(0, number), strict=True))
            found = _taken(self._take_switch_step, keys)
            self.switch_images.put(0, tuple(after for after, _, _ in found))
            sent = [
                self._in_order(found[0][1], images, places)
                for (_, images, _), places in zip(found, self._places, strict=True)
            ]
            for images in zip(*sent, strict=True):
                self.frame_images.put(0, images)
            if any(overwritten != found[0][2] for _, _, overwritten in found):
                raise NotSymmetricError("the switch overwrites other rounds")
            for key, (after, out, overwritten) in zip(keys, found, strict=True):
                self._switch_steps[key], self.overwritten[key] = (after, out), overwritten
            reached = self._switch_steps[state, number]
        return reached

    def _take_switch_step(self, key: tuple[int, int]) -> tuple[int, Numbers, list[tuple[int, int]]]:
        """Return the switch's state, the frames that it sent, and the slots, and their rounds, that it overwrote."""
        state, number = key
        frame, before = self.frames[number], self._switch_states[state]
        after, out = self._switch.process(before, frame.rank, frame.payload)
        sent = tuple(self._numbered_frames.number(InFlight.of(to, to < 0, payload)) for to, payload in out)
        old, new = self._switch.rounds(before), self._switch.rounds(after)
        overwritten = [
            (version >> 1, round_)
            for (switch, version), round_ in old.items()
            if round_ is not None and new[switch, version] != round_
        ]
        return self._numbered_states.number(after), sent, overwritten

    def is_over(self, number: int, state: int) -> bool:
        """Return whether a frame changes nothing, and never will, since its round is over.

        `state`: that of the part that it is on its way to.
        """
        frame = self.frames[number]
        over = self._over.get((number, state))
        if over is None:
            states = self.switch_images.of(0, state) if frame.up else self.rank_images.of(frame.rank, state)
            keys = list(zip(self.frame_images.of(0, number), states, strict=True))
            found = {self._find_over(*key) for key in keys}
            if len(found) != 1:
                raise NotSymmetricError("a frame is of a round that is over, and its image is not")
            (over,) = found
            self._over.update(dict.fromkeys(keys, over))
        return over

    def _find_over(self, number: int, state: int) -> bool:
        frame = self.frames[number]
        try:
            header = unpack(SMALL, frame.payload)
            reached = self.switch_step(state, number) if frame.up else self.rank_step(frame.rank, state, number)
        except (FrameError, BrokenPropertyError):
            return False
        if reached != (state, ()):
            return False
        if frame.up:
            switch = self._switch_states[state]
            slot = self._slot(switch[0], frame, header.slot)
            version = self._switch.at(frame.rank, frame.switch), slot << 1 | header.round & 1
            round_ = self._switch.rounds(switch).get(version)
            return round_ is not None and is_before(header.round, round_)
        rank = self.ranks[frame.rank]
        if rank.done(state):
            return rank.generation(state) == len(self._generations) - 1
        return is_before(header.round, rank.rounds(state)[self._slot(rank.generation(state), frame, header.slot)])

    def _slot(self, generation: int, frame: InFlight, slot: int) -> int:
        """Return which of the job's slots a frame's is, by a generation's leases."""
        switches = [switch.port for switch in self._generations[generation].leases[0].switches]
        return slot * len(switches) + switches.index(frame.switch) if frame.switch in switches else -1

    def flipped(self, number: int) -> Numbers:
        """Return the frame with a bit of every field flipped, and with two bits of every block."""
        found = self._flips.get(number)
        if found is None:
            frame = self.frames[number]
            header = (0, 1, 2, 4, 6, 11, 15, 16, 27, 28, *range(32, SMALL.frame_header_bytes, 4))
            blocks = range(SMALL.frame_header_bytes, len(frame.payload), SMALL.block_bytes)
            bits = [8 * byte + 7 for byte in header] + [8 * byte + bit for byte in blocks for bit in (0, 30)]
            found = self._flips[number] = tuple(
                self._numbered_frames.number(replace(frame, payload=_with_flipped_bit(frame.payload, bit)))
                for bit in bits
            )
        return found

    def text(self, number: int) -> str:
        """Return a frame in words."""
        frame = self.frames[number]
        way = f"rank {frame.rank} to switch" if frame.up else f"switch to rank {frame.rank}"
        if frame.rank < 0:
            way = f"link {~frame.rank} to switch {self._switch.at(frame.rank, frame.switch)}"
        try:
            header = unpack(SMALL, frame.payload)
        except FrameError as error:
            return f"{way}: damaged ({error.reason})"
        kind = {CONTRIBUTE: "CONTRIBUTE", RESULT: "RESULT"}.get(header.type, "PENDING")
        columns = [column for column in range(SMALL.columns) if header.present >> column & 1]
        if len(self._generations[0].leases[0].switches) > 1:
            way = way.replace("switch", f"switch {frame.switch}")
        leases = [generation.leases[max(0, frame.rank)] for generation in self._generations]
        lease = [
            number
            for number, lease in enumerate(leases)
            if any(switch.secret == header.secret for switch in lease.switches)
        ]
        where = f"slot {header.slot} round {header.round} columns {columns}"
        return f"{way}: {kind} {where}" + (f" of lease {lease}" if len(leases) > 1 else "")

    def check_equal_states(self) -> int:
        """Repeat the ranks' steps from other states that have the same number; return how many.

        AssertionError where they differ: then `ranks.py` leaves something out of a state that it must not.
        """
        repeated = 0
        for (rank, state, number), (after, sent) in list(self._rank_steps.items()):
            reached = after, [self.frames[frame].payload for frame in sent]
            repeated += self.ranks[rank].check_equal(state, self._payload(number), reached)
        return repeated

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return how many states the ranks and the switch have had, and how many frames there were."""
        return sum(rank.count for rank in self.ranks), len(self._switch_states), len(self.frames)

    def _payload(self, number: int) -> bytes | None:
        return None if number < 0 else self.frames[number].payload

    def _sent(self, rank: int, reached: tuple[int, Sequence[bytes]]) -> Reached:
        state, payloads = reached
        return state, tuple(self._numbered_frames.number(InFlight.of(rank, True, payload)) for payload in payloads)

    def _moved(self, rank: int) -> Numbers:
        """Return, by permutation, the rank in whose place one comes."""
        return tuple(permutation[rank] for permutation in self.group.permutations)

    def _put_rank_images(self, rank: int, found: Sequence[Reached]) -> None:
        self.rank_images.put(rank, tuple(state for state, _ in found))
        if any(len(sent) != len(found[0][1]) for _, sent in found):
            raise NotSymmetricError(f"another rank than {rank} sends more or fewer frames")
        for images in zip(*(sent for _, sent in found), strict=True):
            self.frame_images.put(0, images)

    def _in_order(self, sent: Numbers, images: Numbers, places: Mapping[int, int]) -> list[int]:
        """Return the images of frames that a switch sent, each beside its own: what goes to the place of its rank."""
        left, found = list(images), []
        for number in sent:
            to = places[self.frames[number].rank]
            image = next((image for image in left if self.frames[image].rank == to), None)
            if image is None:
                raise NotSymmetricError(f"the switch sends nothing to {to}")
            left.remove(image)
            found.append(image)
        if left:
            raise NotSymmetricError("the switch sends more frames")
        return found

    def _read_of_rank(self, rank: int, state: int) -> object:
        found = self.ranks[rank]
        return found.done(state), found.generation(state), found.rounds(state)

    def _read_of_switch(self, _: int, state: int) -> object:
        return self._switch_states[state][0]

    def _read_of_frame(self, _: int, number: int) -> object:
        frame = self.frames[number]
        header = unpack(SMALL, frame.payload)
        return frame.up, header.type, header.slot, header.round


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
