"""The base class of integer expressions; expressions.py has the node types."""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_switch.program.ir.intervals import Interval


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """An integer expression."""

    interval: Interval

    @property
    def width(self) -> int | None:
        """Bits that represent every value; None: unknown (varbit fields, and expressions of them)."""
        return self.interval.width

    @property
    def signed(self) -> bool:
        """Whether the value may be negative."""
        return self.interval.signed
