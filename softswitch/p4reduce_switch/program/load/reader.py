"""Typed access to JSON: a wrong type or value is an InvalidProgramError with the path of the value.

The limits of a program are here too: setting a pipeline must not exhaust the switch's memory or time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from p4reduce_switch.program.errors import InvalidProgramError, UnsupportedConstructError
from p4reduce_switch.program.ir.program import Source

MAX_JSON_BYTES = 64 << 20
MAX_NESTING = 5_000
"""Levels of an expression: a back-end may need a stack frame for some of them."""
MAX_BITS = 1 << 16
"""Bits of a field, a register cell or a constant."""
MAX_HEADER_BITS = 1 << 19
"""Bits of a header: no frame is longer."""
MAX_SLOTS = 1 << 16
"""Fields, validities and stack counters of all headers together: every packet has all of them."""
MAX_STATE_BYTES = 256 << 20
"""Registers, counters and meters together, a cell counted as machine code stores it."""
MAX_NODES = 1 << 14
"""Nodes of a control, states of a parser, instructions of an action."""
MAX_ID = (1 << 32) - 1
MAX_TABLE_SIZE = (1 << 32) - 1
MAX_PRIORITY = (1 << 31) - 1


_HEX = re.compile(r"(-?)(?:0[xX])?([0-9a-fA-F]+)")
_SHOWN = 8  # keys at the end of a path that a message shows
_TYPES = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}


def parse(config: bytes | str | dict[str, Any]) -> Place:
    """Return the root of a JSON text or object."""
    if isinstance(config, (bytes, str)):
        if len(config) > MAX_JSON_BYTES:
            raise InvalidProgramError(f"the pipeline configuration is longer than {MAX_JSON_BYTES} bytes")
        try:
            config = json.loads(config)
        except ValueError as error:
            raise InvalidProgramError(
                f"the pipeline configuration is not the JSON of p4c-bm2-ss: {shorten(str(error))}"
            ) from error
        except RecursionError as error:
            raise UnsupportedConstructError("JSON nested deeper than Python's reader can") from error
    if not isinstance(config, dict):
        raise InvalidProgramError("the pipeline configuration is not a JSON object")
    return Place(config, None, "")


def shorten(text: str) -> str:
    """Return a string of the program for a message: one line of limited length."""
    text = text if len(text) <= 100 else text[:100] + "…"
    return text if text.isprintable() else ascii(text)[1:-1]


class Place:
    """A value in the JSON, and its path."""

    __slots__ = ("key", "parent", "value")

    def __init__(self, value: Any, parent: Place | None, key: str | int) -> None:
        self.value = value
        self.parent = parent
        self.key = key

    # ---- objects and lists

    def __getitem__(self, key: str) -> Place:
        """Return the member of an object; it must exist."""
        if type(self.value) is not dict:
            self.wrong("an object")
        if key not in self.value:
            self.fail(f"{key} is missing")
        return Place(self.value[key], self, key)

    def get(self, key: str) -> Place | None:
        """Return the member of an object; None if it is missing or null."""
        if type(self.value) is not dict:
            self.wrong("an object")
        value = self.value.get(key)
        return None if value is None else Place(value, self, key)

    def rows(self, key: str) -> list[Place]:
        """Return the elements of a list in an object; none if it is missing or null."""
        found = self.get(key)
        return [] if found is None else found.elements()

    def elements(self) -> list[Place]:
        """Return the elements of a list."""
        if type(self.value) is not list:
            self.wrong("a list")
        return [Place(value, self, index) for index, value in enumerate(self.value)]

    def pair(self) -> tuple[Place, Place]:
        """Return a list of two elements."""
        first, second = self.several(2)
        return first, second

    def several(self, count: int) -> list[Place]:
        """Return a list of this many elements."""
        found = self.elements()
        if len(found) != count:
            self.fail(f"expected {count} elements, found {len(found)}")
        return found

    def members(self) -> Iterator[tuple[str, Place]]:
        """Yield keys and values of an object."""
        if type(self.value) is not dict:
            self.wrong("an object")
        for key, value in self.value.items():
            yield str(key), Place(value, self, str(key))

    def has(self, key: str) -> bool:
        """Return whether an object has this member, even if it is null."""
        return type(self.value) is dict and key in self.value

    @property
    def is_object(self) -> bool:
        """Return whether this is an object."""
        return type(self.value) is dict

    @property
    def is_empty_object(self) -> bool:
        """Return whether this is an object without members."""
        return type(self.value) is dict and not self.value

    @property
    def is_null(self) -> bool:
        """Return whether this is null."""
        return self.value is None

    # ---- values

    def text(self) -> str:
        """Return a string."""
        if type(self.value) is not str:
            self.wrong("a string")
        return str(self.value)

    def boolean(self) -> bool:
        """Return true or false."""
        if type(self.value) is not bool:
            self.wrong("true or false")
        return bool(self.value)

    def truth(self) -> bool:
        """Return true or false, or 1 or 0, which p4c writes for the sign of a bool field."""
        return bool(self.integer(0, 1)) if type(self.value) is int else self.boolean()

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a boolean member of an object; the default if it is missing or null."""
        found = self.get(key)
        return default if found is None else found.boolean()

    def integer(self, low: int = 0, high: int = MAX_ID) -> int:
        """Return an integer in low..high."""
        if type(self.value) is not int:
            self.wrong("a whole number")
        if not low <= self.value <= high:
            self.fail(f"the number is not in {low}..{high}")
        return int(self.value)

    def hexadecimal(self) -> int:
        """Return a number from a hexadecimal string; it may be negative."""
        text = self.text()
        found = _HEX.fullmatch(text)
        if found is None:
            self.fail(f"expected a hexadecimal number, found {shorten(text)!r}")
        sign, digits = found.groups()
        if len(digits) > MAX_BITS // 4:
            self.fail(f"a number of more than {MAX_BITS} bits")
        return int(sign + digits, 16)

    def natural(self, bits: int) -> int:
        """Return a hexadecimal number that fits into this many bits."""
        value = self.hexadecimal()
        if not 0 <= value < 1 << bits:
            self.fail(f"the number does not fit {bits} bits")
        return value

    def name(self) -> str:
        """Return a string for a message."""
        return shorten(self.text())

    def source(self) -> Source | None:
        """Return the place in the P4 program that p4c names for an object, if it names one."""
        info = self.value.get("source_info") if type(self.value) is dict else None
        if type(info) is not dict:
            return None
        file, line, code = (info.get(key) for key in ("filename", "line", "source_fragment"))
        if type(file) is not str or type(line) is not int or type(code) is not str:
            return None
        return Source(shorten(file), line, shorten(code))

    # ---- errors

    def wrong(self, expected: str) -> NoReturn:
        """Raise InvalidProgramError: another type was expected."""
        self.fail(f"expected {expected}, found {_TYPES.get(type(self.value), 'a number')}")

    def fail(self, what: str) -> NoReturn:
        """Raise InvalidProgramError with the path of this value."""
        raise InvalidProgramError(f"this is not a BMv2 JSON of a v1model program: {self.path()}: {what}")

    def path(self) -> str:
        """Return the path of this value, such as pipelines[0].tables[3].key; only its end if it is long."""
        keys: list[str | int] = []
        place: Place | None = self
        while place is not None and place.parent is not None:
            keys.append(place.key)
            place = place.parent
        text = "".join(f"[{k}]" if isinstance(k, int) else f".{shorten(k)}" for k in reversed(keys[:_SHOWN]))
        return ("…" if len(keys) > _SHOWN else "") + text.removeprefix(".") or "the root"
