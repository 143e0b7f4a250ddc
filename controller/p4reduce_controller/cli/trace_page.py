"""`p4reduce switch trace --job NAME --html FILE`: a collective of a job, as a page that shows it in slow motion."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from p4reduce_contracts.jobs.answers import JobInfo
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.ranks import name_ranks
from p4reduce_contracts.wire.numbers import RESULT, TYPE_NAMES
from p4reduce_contracts.wire.side_by_side import slot_of, slots_together
from p4reduce_controller.cli import trace_view
from p4reduce_controller.cli.trace_steps import DUPLICATE, FIRST, PARENT, PASSED, Reader, Step
from p4reduce_runtime.environment import P4REDUCE_CONTROLLER

MOST_BYTES: Final = 400_000
"""Bytes of the steps of a page, which with all else stays below 500 KB."""


class Recording:
    """One whole collective of a job in which blocks are sent, from the traces of its switches.

    It begins with the opening round of slot 0 and ends when each slot that was opened has had a RESULT without keys.
    Later frames are left out: ranks probe the path with repeated frames between collectives. Frames of several switches
    are in the order of these switches' clocks.
    """

    BEFORE: Final = 100
    """Steps that are kept before it begins: those of other slots, and of other switches, may be seen earlier."""

    def __init__(self, job: JobInfo, addresses: Mapping[str, str], slot: int | None, most: int | None) -> None:
        """`addresses`: those of P4Runtime by switch; `slot`: the only one that is traced; `most`: frames at most."""
        self.job, self._slot, self._most = job, slot or 0, most
        self.names = [level.switch for level in job.tree]
        self.addresses = {name: addresses[name] for name in self.names}
        count, beside = len(self.names), job.is_side_by_side
        together = slots_together(count, job.slots)
        self.reader = Reader(job.world_size, lambda at, own: slot_of(at, own, count, together) if beside else own)
        self.cut = False
        """Whether the collective has more frames than are kept."""
        self._steps: list[Step] = []
        self._bytes, self._carried = 0, False
        self._done: dict[tuple[int, int], int] = {}
        """When a slot had a RESULT without keys, by switch and slot; nothing in a later round."""
        self._opened: dict[tuple[int, int], tuple[int, int]] = {}
        """The opening rounds, as slot and round, of the slots that are not done, by switch and slot."""
        self._rounds: dict[tuple[int, int], set[tuple[int, int]]] = {}
        """The rounds of the collective that ranks began, as slot and round, by switch and slot."""

    @property
    def complete(self) -> bool:
        """Whether all slots are done, at all switches that ranks send to."""
        return bool(self._rounds) and all(place in self._done for place in self._rounds)

    def take(self, switch: str, trace: Mapping[str, Any]) -> bool:
        """Take the next trace of a switch; return whether there is enough."""
        step = self.reader.step(self.names.index(switch), trace)
        if step is None:
            return False
        place, opened = (step.switch, step.slot), (step.slot, step.round)
        if step.verdict == FIRST and self._is_rank(step):
            if step.opening and step.slot == self._slot and place in self._done:
                if self.complete:
                    return True
                if not self._rounds:  # frames may overtake those of the first slot
                    self._rounds = {place: set(), **{other: {first} for other, first in self._opened.items()}}
                    self._steps = [other for other in self._steps if other.at_us > self._done[place]]
            if self._rounds:
                self._rounds.setdefault(place, set()).add(opened)
            if step.opening:
                self._opened[place] = opened
            self._done.pop(place, None)
        answered = any(answer.type == TYPE_NAMES[RESULT] for answer in step.answers)
        if answered and all(key is None for key in (step.keys if step.state is None else step.state.keys)):
            self._done.setdefault(place, step.at_us)
            self._opened.pop(place, None)
        self._carried = bool(self._rounds) and (self._carried or any(block is not None for block in step.asked))
        if self.complete and not self._carried:  # such as a barrier: the next one may have blocks
            self._rounds = {}
        if not self._rounds:
            del self._steps[: -self.BEFORE]
        self._steps.append(step)
        if self._rounds:
            self._bytes += len(msgspec.json.encode(step))
            self.cut = self._bytes > MOST_BYTES or len(self._steps) == self._most
        return self.cut

    def _is_rank(self, step: Step) -> bool:
        """Whether a frame came from a rank, not from another switch."""
        level = self.job.tree[step.switch]
        below = [each.ranks for each in self.job.tree if each.parent == level.switch]
        return step.child is not None and step.child != PARENT and level.children[step.child] not in below

    @property
    def steps(self) -> list[Step]:
        """The steps of the collective, as they happened."""
        rounds = set().union(*self._rounds.values())
        end = max(self._done.values()) if self.complete else None
        kept = (step for step in self._steps if (step.slot, step.round) in rounds or not step.type and rounds)
        return sorted((step for step in kept if end is None or step.at_us <= end), key=lambda step: step.at_us)

    def document(self) -> dict[str, Any]:
        """Return what the page shows. Raises ClickException without steps."""
        steps = self.steps
        if not steps:
            raise click.ClickException(f"no collective of {self.job.name} began: the ranks have to call one meanwhile")
        begin, bases = steps[0].at_us, {step.slot: step.round & ~1 for step in reversed(steps) if step.type}
        for number, step in enumerate(steps):
            for answer in step.answers:
                if answer.type == TYPE_NAMES[RESULT]:
                    answer.lost = _asked_again(step, answer.to, steps[number + 1 :])
            step.says = self._says(step, step.round - bases.get(step.slot, 0))
            step.at_us -= begin
        reader = self.reader
        call = {"kind": reader.kind, "codec": reader.codec, "elements": reader.elements}
        blocks = -(-reader.elements // reader.geometry.block_words) if reader.codec in ("float32", "int32") else 0
        known = [block.block for step in steps for block in step.blocks.values() if block.block is not None]
        tree = [{"name": level.switch, "parent": level.parent, "children": level.children} for level in self.job.tree]
        return {
            "job": self.job.name,
            "recorded": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(begin / 1e6)),
            "ranks": self.job.world_size,
            "columns": reader.geometry.columns,
            "words": reader.geometry.block_words,
            "call": call,
            "blocks": max(blocks, *(block + 1 for block in known), 0),
            "cut": self.cut,
            "bases": bases,
            "switches": tree,
            "steps": msgspec.to_builtins(steps),
        }

    def write(self, path: Path) -> str:
        """Write the page; return what was written in words."""
        path.write_text(page(self.document()), encoding="utf-8")
        return f"{path} written: {len(self.steps)} frames of {self.job.name}; open it in a browser"

    def _says(self, step: Step, number: int) -> str:
        """Return a step in words; `number` is that of its round as the page counts it."""
        level = self.job.tree[step.switch]
        below = {each.ranks: each.switch for each in self.job.tree if each.parent == level.switch}
        here = "the switch" if len(self.job.tree) == 1 else level.switch

        def names(bits: int) -> str:
            behind = level.behind(bits)
            ranks = [ranks[0] for ranks in behind if ranks not in below]
            return " and ".join(
                [*(below[ranks] for ranks in behind if ranks in below), *([name_ranks(ranks)] if ranks else [])]
            )

        sender = level.parent if step.child == PARENT else names(1 << step.child) if step.child is not None else None
        sender = self._sentence(sender or "an unknown sender")
        slot, state = f"slot {step.slot}", step.state
        missed = [answer.to for answer in step.answers if answer.lost]
        lost = f" The copy for {names(sum(1 << child for child in missed))} is lost or late." if missed else ""
        if step.verdict == PASSED:
            down = f"down to {names(level.full)}. It reads no slot.{lost}"
            return f"{self._sentence(here)} passes the {step.type} of {slot} {down}"
        if state is None:
            return f"{sender} sends a frame that {here} drops: {step.verdict}."
        missing = names(level.full & ~state.seen)
        if step.verdict == DUPLICATE:
            says = f"{sender} sends round {number} of {slot} again. It has been seen, so nothing is added twice."
            if not state.complete:
                return f"{says} The answer is PENDING: {missing} is missing."
            if level.parent is not None:
                return f"{says} {self._sentence(here)} sends the stored sum up again."
            return f"{says} The slot still has the sum, and it goes to {names(1 << (step.child or 0))} alone.{lost}"
        blocks = [str(block.block) for block in step.blocks.values() if block.block is not None]
        keys = [str(key) for key in step.keys if key is not None]
        following = f"its next non-zero {_blocks(keys)}" if keys else "none, since all its blocks there are zeros"
        if step.opening:
            says = f"{sender} opens {slot}. No data yet, only keys: {following}."
        elif blocks:
            says = f"{sender} sends {_blocks(blocks)}, and {slot} adds {'it' if len(blocks) == 1 else 'them'}."
        else:
            zeros = _blocks([str(block) for block in step.asked if block is not None])
            says = f"{sender} has only zeros in {zeros}: to {slot} it sends no data, only its next keys."
        if step.verdict == FIRST and not step.opening:
            says += f" Round {number} overwrites {f'round {number - 2}' if number > 1 else 'an older round'}."
        if not state.complete:
            return f"{says} {self._sentence(here)} waits for {missing}."
        if level.parent is not None:
            return f"{says} All below {here} are in: one sum goes up to {level.parent}."
        asked = [str(key) for key in state.keys if key is not None]
        if not asked:
            return f"{says} All are in: the sum leaves. No key is left, so {slot} is done.{lost}"
        what = "the least keys" if step.opening else "the sum and the least keys"
        return f"{says} All are in: {what} leave. Next {'is' if len(asked) == 1 else 'are'} {_blocks(asked)}.{lost}"

    def _sentence(self, words: str) -> str:
        """Begin a sentence with these words; names of switches stay as they are."""
        return words if words.partition(" ")[0] in self.names else words[0].upper() + words[1:]


def _list(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + list(words[-1:])) or "none"


def _blocks(numbers: Sequence[str]) -> str:
    return f"block{'s' * (len(numbers) > 1)} {_list(numbers)}"


def _asked_again(step: Step, child: int, later: Sequence[Step]) -> bool:
    """Whether an answer to a child did not arrive in time: the next frame of the child repeats this round."""
    place = (step.switch, step.slot, child)
    following = (other for other in later if (other.switch, other.slot, other.child) == place and other.type)
    return child != PARENT and next((other.round == step.round for other in following), False)


def recording_of(text: str) -> dict[str, Any]:
    """Return the recording in a page: what `Recording.document` returned, as JSON has it."""
    _, _, rest = text.partition('id="recording">')
    document: dict[str, Any] = json.loads(rest.partition("</script>")[0])
    return document


def page(document: Mapping[str, Any]) -> str:
    """Return the page that shows a recording: what `Recording.document` returned."""
    folder = resources.files("p4reduce_controller.cli") / "sum_page"
    text = (folder / "page.html").read_text(encoding="utf-8")
    data = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
    parts = {name: (folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")} | {"data": data}
    for name, part in parts.items():
        text = text.replace(f"/* {name} */", part)
    return text


def record(job: str, slot: int | None, most: int | None) -> tuple[list[tuple[int, bytes]], Recording]:
    """Return the bytes by which a job's frames are chosen, and what takes the traces. Raises JobServiceError."""
    where, _ = trace_view.view(job, slot)
    with JobClient(P4REDUCE_CONTROLLER.read()) as client:
        infos = {info.name: info for info in client.list_jobs().with_shards}
        addresses = {switch.name: switch.p4runtime for switch in client.list_switches()}
    if not infos[job].tree:
        raise click.ClickException(f"{job} is still forming: {infos[job].missing}")
    return where, Recording(infos[job], addresses, slot, most)
