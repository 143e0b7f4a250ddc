"""A trace of a job's frame as a step of the protocol: what arrived, what the slot held after it, and the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from p4reduce_contracts.errors import FrameError
from p4reduce_contracts.wire.calls import CodecId, Kind
from p4reduce_contracts.wire.frames import unpack
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import (
    BASE_BYTES,
    CONTRIBUTE,
    DROP_REASONS,
    GUARD_BYTES,
    KEY_BLOCK_SHIFT,
    KEY_NONE,
    PRESENT_BYTE,
    RESULT,
    ROUND_MASK,
    TYPE_NAMES,
    WORDS_PER_CALL,
)

FRAME: Final = 42
"""The offset of a frame behind Ethernet, IPv4 without options, and UDP."""
PARENT: Final = -1
"""In place of a child's bit of `seen`: the switch above."""
FIRST, ADD, DUPLICATE, PASSED = "FIRST", "ADD", "DUPLICATE", "PASSED"
"""What a switch does with a frame that it does not drop; PASSED: the parent's answer goes down."""
PART_WORDS: Final = 64
"""Words of a register of sums at most: a longer block has several."""
KINDS: Final[Mapping[int, str]] = {kind: kind.name.lower().replace("_", "-") for kind in Kind}
CODECS: Final[Mapping[int, str]] = {
    **{codec: codec.name.lower() for codec in CodecId},
    CodecId.NONE: "",
    CodecId.RAW: "bytes",
}


class Block(msgspec.Struct):
    """A block in a frame or a register. Its numbers are the words, as signed ones, over 2^shift."""

    words: str
    """32 bits each, hexadecimal."""
    block: int | None = None
    """Its number in the tensor; None in an opening round, where it describes the call."""
    shift: int | None = None
    """None: the words are no single numbers."""


class State(msgspec.Struct):
    """What a version of a slot holds after a frame."""

    seen: int
    complete: bool
    keys: list[int | None]
    """By column, the least next block of the children seen; None: none left."""
    sums: dict[int, Block]
    """By column."""


class Answer(msgspec.Struct):
    """A frame that left the switch."""

    to: int
    """The child's bit of `seen`, or PARENT."""
    type: str
    lost: bool = False
    """Whether its receiver asked again: it was lost, or late."""


class Step(msgspec.Struct):
    """What one frame did at a switch."""

    at_us: int
    switch: int
    child: int | None
    """Whose frame it is: a child's bit of `seen`, or PARENT; None: no child's was admitted at its port."""
    verdict: str
    """FIRST, ADD, DUPLICATE, PASSED, or the reason why it was dropped."""
    type: str = ""
    slot: int = 0
    """The job's, over all its switches side by side."""
    round: int = 0
    keys: list[int | None] = []
    asked: list[int | None] = []
    """By column, the block that the round sums; None: none."""
    blocks: dict[int, Block] = {}
    """By column."""
    answers: list[Answer] = []
    state: State | None = None
    """Of the version that the frame's round has; None: the switch read none."""
    opening: bool = False
    """Whether the round has keys only, and in slot 0 what was called."""
    says: str = ""
    """The step in words."""


class Reader:
    """Makes steps of traces: of each switch in order."""

    def __init__(self, ranks: int, slot_of: Callable[[int, int], int]) -> None:
        """`slot_of(switch, slot)` is the job's number of a switch's slot."""
        self._ranks, self._slot_of = ranks, slot_of
        self._asked: dict[tuple[int, int, int], tuple[int, tuple[int, ...]]] = {}
        """A round, and the keys that its frames answer: by switch, slot, and the round's lowest bit."""
        self._children: dict[tuple[int, int], int] = {}
        """The child at each port, by switch and port."""
        self._codec = 0
        self.kind, self.elements = "", 0
        """What slot 0's last opening round called."""
        self.geometry = Geometry(1, 4)

    @property
    def codec(self) -> str:
        """The name of the codec that was called."""
        return CODECS.get(self._codec, str(self._codec))

    def step(self, switch: int, trace: Mapping[str, Any]) -> Step | None:
        """Return what a frame did at the switch of this number; None if it was none of a job, or for another switch."""
        events = trace["events"]
        columns = sum(event["step"] == "state" and event["name"].startswith("column_") for event in events)
        frames = [
            (event["values"]["port"], bytes.fromhex(event["frame"])[FRAME:]) for event in events if "frame" in event
        ]
        if not columns:
            return None
        self._learn_geometry(columns, [payload for _, payload in frames])
        before: dict[str, int] = {}
        registers: dict[str, int] = {}
        child, verdict, full = None, "", 0
        for event in events:
            step, name, values = event["step"], event.get("name", "").removeprefix("MainIngress."), event.get("values")
            if step in ("read", "written"):
                before.setdefault(name, values["value"])
                registers[name] = values["value"]
            elif step == "action" and name == "admission.admit_rank":
                child, full = int(values["rank_bit"], 16).bit_length() - 1, int(values["full"], 16)
            elif step == "action" and name == "admission.admit_parent":
                child, verdict = PARENT, PASSED
            elif step == "counted" and name == "drops":
                verdict = DROP_REASONS.get(values["index"], str(values["index"]))
        if not verdict and "slot_state.tags" not in before:
            return None
        if child is not None:
            self._children[switch, trace["port"]] = child
        at_us, child = round(1e6 * trace["at_s"]), self._children.get((switch, trace["port"]))
        found = Step(at_us, switch, child, verdict)
        try:
            frame, *sent = (unpack(self.geometry, payload) for _, payload in frames)
        except FrameError:
            return found
        if not verdict:
            first = before["slot_state.tags"] != frame.epoch << 32 | frame.round
            found.verdict = FIRST if first else DUPLICATE if before["slot_state.seen"] >> (child or 0) & 1 else ADD
        number, keys_before = self._asked.get((switch, frame.slot, frame.round & 1), (0, ()))
        asked = keys_before if number == frame.round else ()
        found.type, found.round, found.opening = TYPE_NAMES[frame.type], frame.round, set(asked) <= {KEY_NONE}
        found.slot, found.keys = self._slot_of(switch, frame.slot), [_next_block(key) for key in frame.keys]
        found.asked = [] if found.opening else [_next_block(key) for key in asked]
        size = self.geometry.block_bytes
        parts = (frame.blocks[at : at + size] for at in range(0, len(frame.blocks), size))
        blocks = dict(zip(_bits(frame.present), parts, strict=True))
        if found.opening and frame.slot == 0 and frame.type == CONTRIBUTE:
            self._learn_call(blocks)
        found.blocks = {column: self._block(asked, column, words) for column, words in blocks.items()}
        for (port, _), answer in zip(frames[1:], sent, strict=True):
            to = PARENT if answer.type == CONTRIBUTE else self._children.get((switch, port), PARENT)
            found.answers.append(Answer(to, TYPE_NAMES[answer.type]))
            if answer.type == RESULT:
                following = frame.round + 1 & ROUND_MASK
                self._asked[switch, frame.slot, following & 1] = following, answer.keys
        if not verdict:
            seen, held = registers["slot_state.seen"], _bits(registers["slot_state.held"])
            keys = [_next_block(registers[f"column_{column}.keys"]) for column in range(columns)]
            sums = {column: self._block(asked, column, self._sum(registers, column)) for column in held}
            found.state = State(seen, seen == full, keys, sums)
        return found

    def _learn_geometry(self, columns: int, payloads: Sequence[bytes]) -> None:
        """Take the number of words in a block from a frame that has one."""
        header = BASE_BYTES + GUARD_BYTES + 4 * columns
        for payload in payloads:
            if blocks := payload[PRESENT_BYTE].bit_count():
                self.geometry = Geometry(columns, max(4, (len(payload) - header) // blocks // 16 * 4))
        if self.geometry.columns < columns:
            self.geometry = Geometry(columns, 4)

    def _learn_call(self, blocks: Mapping[int, bytes]) -> None:
        """Take what was called from the first description in slot 0's opening frame."""
        empty = bytes(self.geometry.block_bytes)
        words = b"".join(blocks.get(column, empty) for column in range(self.geometry.columns))
        for at in range(0, len(words), 4 * WORDS_PER_CALL):
            if (kind := words[at + 4] >> 4) in KINDS:
                self.kind, self._codec = KINDS[kind], words[at + 4] & 15
                self.elements = int.from_bytes(words[at + 8 : at + 12], "big")
                return

    def _block(self, asked: Sequence[int], column: int, words: bytes) -> Block:
        if not asked or asked[column] == KEY_NONE:
            return Block(words.hex())
        exponent = 255 - (asked[column] & 255) - 126
        of_floats = 30 - (self._ranks - 1).bit_length() - exponent
        shifts: Mapping[int, int] = {CodecId.FLOAT32: of_floats, CodecId.INT32: 0}
        return Block(words.hex(), _next_block(asked[column]), shifts.get(self._codec))

    def _sum(self, registers: Mapping[str, int], column: int) -> bytes:
        """Return the words of a column's block sum, of which a register has 64 at most."""
        size = self.geometry.block_bytes
        parts = range(-(-size // (4 * PART_WORDS)))
        return b"".join(
            registers[f"column_{column}.sums_{part}"].to_bytes(min(size, 4 * PART_WORDS), "big") for part in parts
        )


def _next_block(key: int) -> int | None:
    return None if key == KEY_NONE else key >> KEY_BLOCK_SHIFT


def _bits(bitmap: int) -> list[int]:
    return [bit for bit in range(bitmap.bit_length()) if bitmap >> bit & 1]
