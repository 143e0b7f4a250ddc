"""Where processes that a test starts find the tests' own modules."""

from __future__ import annotations

import os
from pathlib import Path

PYTHONPATH = os.pathsep.join(str(Path(__file__).parents[2] / tests) for tests in ("tests", "softswitch/tests"))
"""The folders in which both houses have rigs."""
