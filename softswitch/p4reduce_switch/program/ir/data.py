"""What every integer expression has; the kinds of them are in expressions.py."""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_switch.program.ir.intervals import Interval


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """An integer."""

    interval: Interval

    @property
    def width(self) -> int | None:
        """Bits that hold every value; None: not known (varbit fields, and what is made of them)."""
        return self.interval.width

    @property
    def signed(self) -> bool:
        """True when the value may be negative."""
        return self.interval.signed
