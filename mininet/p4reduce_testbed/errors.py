"""What can go wrong with the testbed.

TestbedError
├── TopologyError      the topology file cannot be used
├── MissingTool        a program, a kernel module or a right is missing; the message says how to get it
└── CommandFailed      a command on the machine or on a host failed
"""

from __future__ import annotations

from collections.abc import Sequence


class TestbedError(Exception):
    """The testbed cannot go on; the message says what to do."""


class TopologyError(TestbedError):
    """The topology file cannot be used; the message names the place."""


class MissingTool(TestbedError):
    """A program, a kernel module or a right is missing."""


class CommandFailed(TestbedError):
    """A command ended with an error."""

    def __init__(self, command: Sequence[str], output: str) -> None:
        self.output = output
        said = " ".join(output.split()) or "it said nothing"
        super().__init__(f"`{' '.join(command)}` failed: {said}")
