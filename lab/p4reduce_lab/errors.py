"""Errors of the set-up of a network, a switch or a measurement on this machine.

SetupError
├── MissingToolError  a program, a package, a kernel module or a privilege is missing; the message says how to get it
└── CommandError      a command on the machine or on a host failed
"""

from __future__ import annotations

from collections.abc import Sequence


class SetupError(Exception):
    """The machine cannot be set up as needed; the message says what to do."""


class MissingToolError(SetupError):
    """A program, a package, a kernel module or a privilege is missing."""


class CommandError(SetupError):
    """A command ended with an error."""

    def __init__(self, command: Sequence[str], output: str) -> None:
        self.output = output
        super().__init__(f"`{' '.join(command)}` failed: {' '.join(output.split()) or 'it printed nothing'}")
