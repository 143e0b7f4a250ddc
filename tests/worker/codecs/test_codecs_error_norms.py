"""The tables of error norms and of limits in docs/compressors.md are what the formats give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from p4reduce.codecs.formats import levels
from p4reduce.errors import LaneOverflowError
from p4reduce_contracts.wire.geometry import DEFAULT
from p4reduce_contracts.wire.lanes import WIDTHS, lane_limit, lanes_per_word
from p4reduce_contracts.wire.numbers import MAX_RANKS
from rigs.float_sums import by_numpy

PAGE = Path(__file__).parents[3] / "docs" / "compressors.md"
RANKS = (2, 8, 32)
ELEMENTS = 1 << 16


def relative_error(ranks: int, bits: int) -> float:
    """Return |sum - exact sum| / |exact sum| of ranks' normally distributed numbers."""
    given = torch.from_numpy(np.random.default_rng(ranks).standard_normal((ranks, ELEMENTS)).astype(np.float32))
    exact = given.double().sum(0)
    return float((by_numpy(list(given), bits, DEFAULT.block_words).double() - exact).norm() / exact.norm())


def table() -> str:
    """Return the table's rows."""
    rows = []
    for bits in (32, 16, 8):
        errors = " | ".join(f"{relative_error(ranks, bits):.1e}" for ranks in RANKS)
        rows.append(f"| {bits} | {errors} |")
    return "\n".join(rows)


def test_the_table_of_error_norms_is_that_of_the_formats() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


def test_the_table_of_lanes_is_what_a_lane_holds() -> None:
    ranks = {bits: f"{min(MAX_RANKS, lane_limit(bits)):,}" for bits in WIDTHS}
    small = [bits for bits in WIDTHS if bits < 16]
    assert ranks[16] == ranks[32]
    rows = [
        ("bits", *small, "16, 32"),
        ("---",) * (len(small) + 2),
        ("lanes a word", *map(lanes_per_word, small), f"{lanes_per_word(16)}, {lanes_per_word(32)}"),
        ("ranks", *(ranks[bits] for bits in small), ranks[16]),
    ]
    table = "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)
    assert table in PAGE.read_text(encoding="utf-8")


def units(bits: int, ranks: int) -> str:
    """Return the cell of the table of units."""
    try:
        return f"{levels(bits, ranks):,}"
    except LaneOverflowError:
        return "refused"


def test_the_table_of_units_is_what_a_rank_sends() -> None:
    first_and_last = ((2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64), (513, 1024))
    for bits in (8, 16):
        cells = [{units(bits, ranks) for ranks in pair} for pair in first_and_last]
        assert all(len(cell) == 1 for cell in cells)
        assert f"| {bits} bits | {' | '.join(cell.pop() for cell in cells)} |" in PAGE.read_text(encoding="utf-8")
