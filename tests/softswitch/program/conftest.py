"""Loads the conformance corpus's small programs for the tests of the P4 executor."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from conformance.case import PROGRAMS
from p4reduce_switch.program import executors


@pytest.fixture
def config() -> Callable[[str], dict[str, Any]]:
    """config(name): the BMv2 JSON of a program."""
    return lambda name: json.loads((PROGRAMS / f"{name}.json").read_text())


@pytest.fixture(params=sorted(executors))
def load_config(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """load_config(json): a fresh instance of a program, in each executor."""
    return executors[request.param]


@pytest.fixture
def load(config: Callable[[str], dict[str, Any]], load_config: Callable[[Any], Any]) -> Callable[[str], Any]:
    """load(name): a fresh instance of a program of the corpus, in each executor."""
    return lambda name: load_config(config(name))
