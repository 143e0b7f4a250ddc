"""The ways in which a launch of these tests finds what sums."""

from __future__ import annotations

import pytest

from rigs.system import System


@pytest.fixture(params=["a controller is named", "nothing is named"])
def named(request: pytest.FixtureRequest) -> System | None:
    """The system whose controller a launch names; None: it names none, and sums are made in the host's memory."""
    return None if request.param == "nothing is named" else request.getfixturevalue("wide_system")
