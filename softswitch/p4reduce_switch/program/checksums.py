"""Calculations (hashes over fields), and the checksums that are verified and updated with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import layout as slots
from .errors import InvalidProgram, UnsupportedConstruct
from .expressions import Expressions
from .hashes import ALGORITHMS
from .layout import Header, Layout
from .source import Source
from .values import constant, unsigned, wrap

Json = dict[str, Any]


@dataclass(frozen=True)
class Item:
    """One piece of a calculation's input; `width` None means a varbit field of `length` bits."""

    code: str
    width: int | None
    header: Header | None
    length: str = ""


class Checksums:
    """Writes a function for each calculation, and those that verify and update checksums."""

    def __init__(self, source: Source, layout: Layout, expressions: Expressions) -> None:
        self.source = source
        self.layout = layout
        self.expressions = expressions

    def calculation(self, config: Json) -> tuple[str, int]:
        """Write `calculation(f) -> int`; returns its name and the width of its result."""
        algorithm = config["algo"]
        if algorithm not in ALGORITHMS:
            raise UnsupportedConstruct(f"hash algorithm {algorithm} ({config['name']})")
        function, width = ALGORITHMS[algorithm]
        items, payload = self._items(config["input"])
        name = self.source.fresh("calculation")
        with self.source.block(f"def {name}(f):"):
            if algorithm in ("csum16", "cksum16") and _word_aligned(items):
                self._internet_checksum(items, payload)
            else:
                self._join(items)
                data = "(v << (-n & 7)).to_bytes((n + 7) >> 3, 'big')"
                data += f" + f[{slots.PAYLOAD}]" if payload else ""
                self.source.add(f"return {self.source.bind('hash', function)}({data})")
        return name, width

    def _items(self, inputs: list[Json]) -> tuple[list[Item], bool]:
        items: list[Item] = []
        payload = False
        for part in inputs:
            match part["type"]:
                case "field":
                    header = self.layout.header(part["value"][0])
                    items.append(self._field_item(header, header.type.field(part["value"][1]).offset))
                case "header":
                    header = self.layout.header(part["value"])
                    items += [self._field_item(header, kind.offset) for kind in header.type.fields]
                case "hexstr":
                    width = int(part["bitwidth"])
                    value = wrap(constant(int(part["value"], 16)), width, False)
                    items.append(Item(value.code, width, None))
                case "payload":
                    payload = True
                case other:
                    raise UnsupportedConstruct(f"calculation over a {other}")
        return items, payload

    def _field_item(self, header: Header, offset: int) -> Item:
        kind = header.type.fields[offset]
        owner = None if header.metadata else header
        code = f"f[{header.base + offset}]"
        if kind.varbit:
            return Item(code, None, owner, f"f[{header.base + header.type.length_offset}]")
        if kind.signed:
            code = f"({code} & {(1 << kind.width) - 1:#x})"
        self.layout.used.add(header.base + offset)
        return Item(code, kind.width, owner)

    def _internet_checksum(self, items: list[Item], payload: bool) -> None:
        """Each field is weighted with 2^(its bit position modulo 16): 2^16 is 1 modulo 65535."""
        self.source.add("s = 0")
        for header, group in _groups(items):
            position = sum(item.width or 0 for item in group)
            terms = []
            for item in group:
                position -= item.width or 0
                shift = position & 15
                terms.append(f"({item.code} << {shift})" if shift else item.code)
            condition = f"if f[{header.valid}]:" if header else "if True:"
            with self.source.block(condition):
                self.source.add("s += " + " + ".join(terms))
        if payload:
            self.source.add(f"p = f[{slots.PAYLOAD}]")
            self.source.add("s += from_bytes(p + b'\\0' if len(p) & 1 else p, 'big')")
        self.source.add("return 0xffff - (s % 0xffff or (0xffff if s else 0))")

    def _join(self, items: list[Item]) -> None:
        """Concatenate the items of valid headers: `v` holds `n` bits."""
        self.source.add("v = n = 0")
        for header, group in _groups(items):
            with self.source.block(f"if f[{header.valid}]:" if header else "if True:"):
                for item in group:
                    width = item.length if item.width is None else str(item.width)
                    self.source.add(f"v = v << {width} | {item.code}; n += {width}")

    def check_all(
        self, name: str, checksums: list[Json], calculations: dict[str, tuple[str, int]], verify: bool
    ) -> bool:
        """Write `name(f)` that verifies (or updates) all checksums in turn; False if there are none."""
        chosen = [c for c in checksums if c.get("verify" if verify else "update", True)]
        if not chosen:
            return False
        with self.source.block(f"def {name}(f):"):
            for checksum in chosen:
                if checksum["type"] != "generic":
                    raise UnsupportedConstruct(f"checksum of type {checksum['type']} ({checksum['name']})")
                condition = checksum.get("if_cond")
                test = self.expressions.boolean(condition) if condition else "True"
                header = self.layout.header(checksum["target"][0])
                kind = header.type.field(checksum["target"][1])
                if kind.varbit:
                    raise InvalidProgram(f"checksum {checksum['name']} is stored in a varbit field")
                function, width = calculations[checksum["calculation"]]
                target = f"f[{header.base + kind.offset}]"
                if verify:
                    valid = "" if header.metadata else f"f[{header.valid}] and "
                    self.source.add(f"if {valid}{test} and {function}(f) != {target}:")
                    self.source.add(f"    f[{slots.CHECKSUM_ERROR}] = 1")
                else:
                    value = wrap(unsigned(f"{function}(f)", width), kind.width, kind.signed)
                    self.source.add(f"if {test}:")
                    self.source.add(f"    {target} = {value.code}")
        return True


def _groups(items: list[Item]) -> list[tuple[Header | None, list[Item]]]:
    """Neighbouring items of the same header together."""
    groups: list[tuple[Header | None, list[Item]]] = []
    for item in items:
        if not groups or groups[-1][0] is not item.header:
            groups.append((item.header, []))
        groups[-1][1].append(item)
    return groups


def _word_aligned(items: list[Item]) -> bool:
    """True when leaving out any invalid header keeps all others on 16-bit boundaries."""
    return all(
        all(item.width is not None for item in group) and sum(item.width or 0 for item in group) % 16 == 0
        for _, group in _groups(items)
    )
