"""What the compiler says of a program that it leaves to the Python executor."""

from __future__ import annotations

from p4reduce_switch.program.errors import ProgramError


class NotCompilable(ProgramError):
    """The program does something that is not compiled; the message names it."""
