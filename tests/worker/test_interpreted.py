"""Kernels interpreted, as with P4REDUCE_KERNELS=off: what holds of them holds then too."""

from __future__ import annotations

import pytest

from p4reduce_runtime import kernels
from rigs.kernels import passes_interpreted


@pytest.mark.processes
@pytest.mark.skipif(not kernels.compiles(), reason="kernels are interpreted anyway")
def test_definitions_and_rules_hold_and_sums_over_a_terrible_network_are_right_interpreted() -> None:
    """A choice of the tests, in seconds."""
    passes_interpreted(
        "worker/codecs/test_codecs_coordinates.py",
        "worker/compressors/test_selection.py",
        "worker/protocol/test_engine_rules.py",
        "worker/protocol/test_engine_terrible_network.py",
        "-k",
        "(engine and not everything) or everything and 1] or exponents or by_hand or no_encoding or ends "
        "or other_kinds or (odd_sizes and 64)",
    )
