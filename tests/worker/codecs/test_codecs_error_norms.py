"""The table of error norms in docs/compressors.md is what the formats give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from p4reduce_contracts.wire import DEFAULT
from rigs.float_sums import by_numpy

PAGE = Path(__file__).parents[3] / "docs" / "compressors.md"
RANKS = (1, 2, 4, 8, 16, 32)
ELEMENTS = 1 << 16


def relative_error(ranks: int, wire: str) -> float:
    """Return |sum - exact sum| / |exact sum| of ranks' normally distributed numbers."""
    given = torch.from_numpy(np.random.default_rng(ranks).standard_normal((ranks, ELEMENTS)).astype(np.float32))
    exact = given.double().sum(0)
    return float((by_numpy(list(given), wire, DEFAULT.block_words).double() - exact).norm() / exact.norm())


def table() -> str:
    """Return the table's rows."""
    rows = []
    for wire in ("float32", "16", "8"):
        errors = " | ".join(f"{relative_error(ranks, wire):.1e}" for ranks in RANKS)
        rows.append(f"| `{wire}` | {errors} |")
    return "\n".join(rows)


def test_the_table_of_error_norms_is_that_of_the_formats() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")
