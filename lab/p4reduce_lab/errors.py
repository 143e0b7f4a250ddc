"""The errors of the demo, the study, the benchmark and the testbed, as one line for who runs them.

LabError
├── ProcessError              a child process failed (processes.py)
├── DataError                 the data of a training cannot be had (datasets.py)
└── SetupError                a network or a switch cannot be set up on this machine
    ├── MissingToolError      a program, a package, a kernel module or a privilege is missing
    └── CommandError          a command on the machine or on a host failed
"""

from __future__ import annotations

from collections.abc import Sequence

import click


class LabError(click.ClickException):
    """The command cannot continue; the message says what to do."""


class SetupError(LabError):
    """The machine cannot be set up as needed; the message says what to do."""


class MissingToolError(SetupError):
    """A program, a package, a kernel module or a privilege is missing."""


class CommandError(SetupError):
    """A command ended with an error."""

    def __init__(self, command: Sequence[str], output: str) -> None:
        self.output = output
        super().__init__(f"`{' '.join(command)}` failed: {' '.join(output.split()) or 'it printed nothing'}")
