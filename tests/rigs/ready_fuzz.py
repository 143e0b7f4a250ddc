"""Imports the decoders with what atheris needs to see which of their code an input reaches."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

PACKAGES = ["p4reduce", "p4reduce_contracts", "p4reduce_controller", "p4reduce_switch", "p4reduce_testbed"]

with atheris.instrument_imports(include=PACKAGES):
    import fuzz.targets  # noqa: F401 (imported for its scripts)
