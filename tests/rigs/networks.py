"""With what tests run over one switch and over a tree: a leaf switch for each of two racks, below a root."""

from __future__ import annotations

from typing import Final

import pytest

from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from rigs.system import ROOT

RACKS: Final = 2
KILLED: Final = {"one_switch": (1, ONLY_SWITCH), "leaf": (RACKS, "leaf2"), "root": (RACKS, ROOT)}
"""Networks, as numbers of racks, and a switch of each."""


def over_networks(fixture: str = "system") -> pytest.MarkDecorator:
    """Run a test over both; the fixture starts as many racks as its parameter says, one switch without a parameter."""
    return pytest.mark.parametrize(fixture, [1, RACKS], indirect=True, ids=["one_switch", "two_racks"])


def racks_of(request: pytest.FixtureRequest) -> int:
    """Return the number of racks that a test wants of the fixture."""
    racks: int = getattr(request, "param", 1)
    return racks
