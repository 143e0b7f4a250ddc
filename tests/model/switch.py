"""The switch of the model: the compiled program, as a function from (state, frame) to (state, frames)."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from model.calls import Generation
from p4reduce.protocol.datagram import Datagram, switch_of
from p4reduce.testing.reference_switch import Cell, ReferenceSwitch
from p4reduce_contracts.jobs.lease import LeasedSwitch
from p4reduce_contracts.wire.frames import unpack
from p4reduce_contracts.wire.geometry import SMALL
from p4reduce_contracts.wire.numbers import KEY_NONE, PENDING, RESULT
from p4reduce_contracts.wire.side_by_side import slot_of
from p4reduce_switch.program import compile_program
from rigs.pipeline import ARTIFACTS, SLOT_BASE, payload_of, with_secret
from rigs.tree import Shape, TreeRig

Rounds = Mapping[tuple[int, int], int | None]
"""(switch, 2 * slot + the round's lowest bit) -> the round of the present epoch that this version of the slot holds."""
Sent = list[tuple[int, bytes]]
"""Payloads that leave a switch, with where each goes: to a rank, or -1, -2, ...: over a link to another switch."""


NOT_LEASED: Final = (1 << 64) - 1
"""The secret of every rank at a switch that their leases do not have."""


class CompiledSwitch:
    """The v1model program as the embedded switch compiles it, or a tree of it.

    A state is a value: the number of the admitted leases, and the cells of all registers.

    `mutate` changes the program's JSON before it is compiled. `shape`: a tree's (rigs/tree.py); None: one switch for
    all ranks. `uplink_secrets`: links' secrets, by generation; None: others in each. With new leases of
    an epoch that was used before, the registers are as after a start (the controller repeats an epoch only then); else
    they stay as they are.
    """

    def __init__(
        self,
        generations: Sequence[Generation],
        mutate: Callable[[Any], None] | None = None,
        *,
        shape: Shape | None = None,
        uplink_secrets: Sequence[int] | None = None,
    ) -> None:
        config = json.loads((ARTIFACTS / "small" / "p4reduce.json").read_bytes())
        if mutate is not None:
            mutate(config)
        self._epochs = [generation.leases[0].epoch for generation in generations]
        compiled = compile_program(json.dumps(config).encode())
        ranks = len(generations[0].leases)
        secrets = uplink_secrets or range(7, 7 + len(generations))
        self._trees = [
            TreeRig(
                "small",
                list(range(ranks)) if shape is None else shape,
                epoch=generation.leases[0].epoch,
                secret_of=[lease.switches[0].secret for lease in generation.leases].__getitem__,
                uplink_secret=lambda number, secret=secret: secret << 32 | number,  # type: ignore[misc]
                compiled=compiled,
            )
            for generation, secret in zip(generations, secrets, strict=True)
        ]
        first, count = 2 * SLOT_BASE, 2 * generations[0].leases[0].slot_count
        self._cells = [
            [
                [
                    register.memory.view(np.uint8).reshape(register.size, -1)[first : first + count]
                    for register in switch.program.registers.values()
                ]
                for _, switch in sorted(tree.switches.items())
            ]
            for tree in self._trees
        ]
        self._fresh = tuple(tuple(cells.tobytes() for cells in of_switch) for of_switch in self._cells[0])
        self._versions = range(count)
        self._places = {~number: place for number, place in enumerate(self._trees[0].trunks)}
        self._numbers = {place: number for number, place in self._places.items()}

    def begin(self, generation: int) -> Any:
        return generation, self._fresh

    def renew(self, state: Any) -> Any:
        """Return the state with the next leases, in all switches."""
        generation, registers = state
        repeated = self._epochs[generation + 1] in self._epochs[: generation + 1]
        return generation + 1, self._fresh if repeated else registers

    def at(self, sender: int, side: int = 0) -> int:
        """Return the switch to which a rank or link leads; of those side by side it is `side`."""
        return self._trees[0].above(sender)[0] if sender >= 0 else self._places[sender].switch

    def process(self, state: Any, sender: int, payload: bytes) -> tuple[Any, Sent]:
        generation, registers = state
        tree, switch = self._trees[generation], self.at(sender)
        self._load(state, switch)
        if sender >= 0:
            place, frame = tree.framed(sender, payload)
        else:
            place = self._places[sender]
            frame = tree.framed_on_trunk(place, payload)
        sent = [
            (to.rank if to.rank >= 0 else self._numbers[to], payload_of(out)) for to, out in tree.arrive(place, frame)
        ]
        changed = tuple(cells.tobytes() for cells in self._cells[generation][switch])
        return (generation, (*registers[:switch], changed, *registers[switch + 1 :])), sent

    def rounds(self, state: Any) -> Rounds:
        found: dict[tuple[int, int], int | None] = {}
        epoch = self._epochs[state[0]]
        for number, switch in self._trees[state[0]].switches.items():
            self._load(state, number)
            tags = switch.program.registers["MainIngress.slot_state.tags"]
            for version in self._versions:
                of, round_ = divmod(tags.read(2 * SLOT_BASE + version), 1 << 32)
                found[number, version] = round_ if of == epoch else None
        return found

    def _load(self, state: Any, switch: int) -> None:
        generation, registers = state
        for cells, content in zip(self._cells[generation][switch], registers[switch], strict=True):
            cells[...] = np.frombuffer(content, np.uint8).reshape(cells.shape)


class SideBySide(CompiledSwitch):
    """Switches side by side, of which each has all ranks; a payload says which of them it is for or from.

    A state has, after the number of the leases, the registers of each.
    """

    def __init__(self, generations: Sequence[Generation], restarted: Sequence[int] = ()) -> None:
        """`restarted`: the switches that are started again before each new lease."""
        self._generations, self._restarted = generations, restarted
        numbers = sorted({switch.port for generation in generations for switch in generation.leases[0].switches})
        self._sides = [CompiledSwitch([_at(number, generation) for generation in generations]) for number in numbers]

    def begin(self, generation: int) -> Any:
        return generation, tuple(side.begin(generation)[1] for side in self._sides)

    def renew(self, state: Any) -> Any:
        kept = [self.begin(0)[1][number] if number in self._restarted else own for number, own in enumerate(state[1])]
        return state[0] + 1, tuple(kept)

    def at(self, sender: int, side: int = 0) -> int:
        return side

    def process(self, state: Any, sender: int, payload: bytes) -> tuple[Any, Sent]:
        (generation, registers), number = state, switch_of(payload)
        (_, own), sent = self._sides[number].process((generation, registers[number]), sender, payload)
        after = generation, (*registers[:number], own, *registers[number + 1 :])
        return after, [(to, Datagram(out, number)) for to, out in sent]

    def rounds(self, state: Any) -> Rounds:
        generation, registers = state
        lease = self._generations[generation].leases[0]
        switches = [switch.port for switch in lease.switches]
        found: dict[tuple[int, int], int | None] = {}
        for place, number in enumerate(switches):
            for (_, version), round_ in self._sides[number].rounds((generation, registers[number])).items():
                slot = slot_of(place, version >> 1, len(switches), lease.slots_together)
                found[number, slot << 1 | version & 1] = round_
        return found


def _at(number: int, generation: Generation) -> Generation:
    """Return the leases as one of the switches side by side has them: where they do not name it, no frame is for it."""
    leases = []
    for lease in generation.leases:
        own = [switch for switch in lease.switches if switch.port == number] or [LeasedSwitch(secret=NOT_LEASED)]
        leases.append(replace(lease, slot_count=lease.slot_count // len(lease.switches), switches=tuple(own)))
    return Generation(tuple(leases), generation.calls)


class LeafAsRoot(CompiledSwitch):
    """The first leaf is set up as the job's root: it answers its ranks by itself."""

    def __init__(self, generations: Sequence[Generation], shape: Shape) -> None:
        super().__init__(generations, shape=shape)
        for tree, generation in zip(self._trees, generations, strict=True):
            tree.switches[1].parent = None
            tree.switches[1].renew(generation.leases[0].epoch)


class LeafWithAnotherPartial(CompiledSwitch):
    """A leaf sends up the duplicate that it got, in the place of the partial sum that it has stored."""

    def process(self, state: Any, sender: int, payload: bytes) -> tuple[Any, Sent]:
        after, sent = super().process(state, sender, payload)
        if after != state or sender < 0:
            return after, sent
        return after, [(to, out if to >= 0 else with_secret(payload, unpack(SMALL, out).secret)) for to, out in sent]


def without_round_check(config: Any) -> None:
    """Change the program: no round of the present epoch is STALE."""
    changed = 0
    for conditional in config["pipelines"][0]["conditionals"]:
        text = json.dumps(conditional["expression"])
        if "slot_state_stored_tag" in text and '"0x00000002"' in text:
            conditional["true_next"] = conditional["false_next"]
            changed += 1
    assert changed == 1, "the comparison of rounds is not where it was in the program: adapt this mutant"


class SwitchMLRule(CompiledSwitch):
    """The rule of SwitchML's paper (NSDI'21, algorithm 3) in the place of ours: two versions of a slot, without rounds.

    A contribution counts if its rank's bit in the version is not set, and clears the rank's bit in the other version.
    A state has, by slot and version, how many contributions it has and its cell, pickled.
    """

    def __init__(self, generations: Sequence[Generation]) -> None:
        super().__init__(generations)
        self._leases = [generation.leases for generation in generations]

    def begin(self, generation: int) -> Any:
        return generation, (pickle.dumps((0, Cell())),) * (2 * self._leases[0][0].slot_count)

    def renew(self, state: Any) -> Any:
        return state[0] + 1, state[1]

    def rounds(self, state: Any) -> Rounds:
        return {}

    def process(self, state: Any, rank: int, payload: bytes) -> tuple[Any, Sent]:
        generation, versions = state
        leases, frame, switch = self._leases[generation], unpack(SMALL, payload), ReferenceSwitch(SMALL)
        index = frame.slot << 1 | frame.round & 1
        (count, cell), (other_count, other) = (pickle.loads(versions[at]) for at in (index, index ^ 1))
        duplicate, after = bool(cell.seen >> rank & 1), list(versions)
        if not duplicate:
            if count in (0, len(leases)):
                count, cell = 0, Cell(seen=cell.seen, keys=[KEY_NONE] * SMALL.columns)
            count += 1
            switch._add(cell, rank, frame)
            other.seen &= ~(1 << rank)
            cell.sums = dict(sorted(cell.sums.items()))  # or states that are equal would differ
            after[index], after[index ^ 1] = pickle.dumps((count, cell)), pickle.dumps((other_count, other))
        complete = count == len(leases)
        if complete:
            cell.seen = leases[0].full
        answer = switch._answer(RESULT if complete else PENDING, cell, frame, 0)
        to = (rank,) if duplicate else range(len(leases)) if complete else ()
        return (generation, tuple(after)), [(each, with_secret(answer, leases[each].switches[0].secret)) for each in to]
