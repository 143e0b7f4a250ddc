"""The build scripts of p4src, which is no package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

P4SRC = Path(__file__).resolve().parents[2] / "p4src"


def load(name: str) -> ModuleType:
    """Return p4src/`name`.py as a module."""
    spec = importlib.util.spec_from_file_location(f"p4src_{name}", P4SRC / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
