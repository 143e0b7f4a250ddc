"""The build scripts of p4src, which is no package, and what shared/wire.p4 says, read from its text."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

P4SRC = Path(__file__).resolve().parents[2] / "p4src"


@dataclass(frozen=True)
class WireP4:
    text: str

    @cached_property
    def widths(self) -> dict[str, int]:
        """Bits of each type that has a name: typedefs and enums."""
        found = re.findall(r"typedef bit<(\d+)>\s+(\w+);", self.text)
        found += re.findall(r"enum bit<(\d+)> (\w+) \{", self.text)
        return {name: int(bits) for bits, name in found}

    @cached_property
    def constants(self) -> dict[str, int]:
        """The constants that are plain numbers."""
        found = re.findall(r"^const (?:bit<\d+>|\w+) (\w+) = (0x[0-9A-Fa-f]+|\d+);", self.text, re.MULTILINE)
        return {name: int(value, 0) for name, value in found}

    @cached_property
    def enums(self) -> dict[str, dict[str, int]]:
        bodies = re.findall(r"enum bit<\d+> (\w+) \{(.*?)\n\}", self.text, re.DOTALL)
        return {
            name: {member: int(value) for member, value in re.findall(r"^\s*(\w+) = (\d+)", body, re.MULTILINE)}
            for name, body in bodies
        }

    def fields(self, header: str) -> list[tuple[str, int]]:
        """(name, bits) of a header's fields, in order. KeyError for a type that wire.p4 does not name."""
        body = re.search(rf"header {header} \{{(.*?)\n\}}", self.text, re.DOTALL)
        assert body is not None, f"wire.p4 has no header {header}"
        rows = re.findall(r"^\s*(?:bit<(\d+)>|(\w+))\s+(\w+);", body[1], re.MULTILINE)
        return [(name, int(bits) if bits else self.widths[kind]) for bits, kind, name in rows]


WIRE_P4 = WireP4((P4SRC / "shared/wire.p4").read_text())


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"p4src_{name}", P4SRC / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
