"""The testbed's errors.

SetupError (p4reduce_lab.errors)
└── TestbedError
    └── TopologyError      the topology file cannot be used
"""

from __future__ import annotations

from p4reduce_lab.errors import SetupError


class TestbedError(SetupError):
    """The testbed cannot continue; the message says what to do."""


class TopologyError(TestbedError):
    """The topology file cannot be used; the message names the place."""
