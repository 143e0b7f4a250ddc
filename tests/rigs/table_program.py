"""A program of one table in BMv2's JSON: its action writes its argument into the frame."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from p4reduce_switch.program import Program, Table
from rigs.random_expressions import BASE

MISS = 0
"""What the frame has after a miss."""


class TableProgram:
    """A table with keys of these (kind, bits); `look` runs a frame with a value for each key through it.

    Its action mark(value) has 8 bits, the default is mark(MISS).
    """

    def __init__(self, keys: Sequence[tuple[str, int]], max_size: int = 8) -> None:
        self._bits = [bits for _, bits in keys]
        fields: list[list[Any]] = [[f"k{number}", bits, False] for number, bits in enumerate(self._bits)]
        fields.append(["pad", -sum(self._bits) % 8 + 8, False])
        fields.append(["result", 8, False])
        self._length = sum(bits for _, bits, _ in fields) // 8
        kinds = {kind for kind, _ in keys}
        whole = "range" if "range" in kinds else "ternary" if kinds & {"ternary", "optional"} else "lpm"
        config: dict[str, Any] = json.loads(BASE.read_text())
        config["header_types"][2]["fields"] = fields
        action = config["actions"][0]
        action["name"], action["runtime_data"] = "mark", [{"name": "value", "bitwidth": 8}]
        result = {"type": "field", "value": ["h", "result"]}
        port = {"type": "field", "value": ["standard_metadata", "egress_spec"]}
        action["primitives"] = [
            {"op": "assign", "parameters": [result, {"type": "runtime_data", "value": 0}]},
            {"op": "assign", "parameters": [port, {"type": "hexstr", "value": "0x1"}]},
        ]
        table = config["pipelines"][0]["tables"][0]
        table |= {
            "match_type": "exact" if kinds == {"exact"} else whole,
            "max_size": max_size,
            "actions": ["mark"],
            "next_tables": {"mark": None},
            "key": [
                {"match_type": kind, "name": f"k{number}", "target": ["h", f"k{number}"], "mask": None}
                for number, (kind, _) in enumerate(keys)
            ],
        }
        table["default_entry"] |= {"action_const": False, "action_data": [hex(MISS)], "action_entry_const": False}
        self.program = Program(config)
        (table,) = (table for table in self.program.tables.values() if table.keys)
        self.table: Table = table

    def look(self, *key: int) -> int:
        """What the table's action writes for this key."""
        number = 0
        for value, bits in zip(key, self._bits, strict=True):
            number = number << bits | value
        number <<= 8 * self._length - sum(self._bits)
        ((_, frame),) = self.program.process(1, number.to_bytes(self._length, "big"))
        return frame[-1]
