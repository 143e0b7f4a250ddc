"""Loads the conformance corpus's small programs for the tests of loaded programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from conformance.case import PROGRAMS
from p4reduce_switch.program import Program


@pytest.fixture
def config() -> Callable[[str], dict[str, Any]]:
    """config(name): the BMv2 JSON of a program."""
    return lambda name: json.loads((PROGRAMS / f"{name}.json").read_text())


@pytest.fixture
def load(config: Callable[[str], dict[str, Any]]) -> Callable[[str], Program]:
    """load(name): a fresh instance of a program of the corpus."""
    return lambda name: Program(config(name))
