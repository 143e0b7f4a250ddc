"""Kernels interpreted, as with P4REDUCE_KERNELS=off: what holds of them holds then too."""

from __future__ import annotations

import pytest

from p4reduce_runtime import kernels
from rigs import random_traffic
from rigs.kernels import interpreted, passes_interpreted

TRAFFIC = [(seed, harm) for seed in range(8) for harm in (0.0, 0.02, 0.15)]


@pytest.mark.processes
@pytest.mark.skipif(not kernels.compiles(), reason="kernels are interpreted anyway")
def test_definitions_and_rules_hold_and_random_traffic_is_the_same_interpreted() -> None:
    """A choice of the tests, in seconds; of random traffic the frames, counts, times and sums."""
    found = interpreted("-m", "rigs.random_traffic", *(f"{seed}:{harm}" for seed, harm in TRAFFIC)).split()
    assert found == [random_traffic.play(seed, harm) for seed, harm in TRAFFIC]
    passes_interpreted(
        "worker/codecs/test_codecs_exponents.py",
        "worker/codecs/test_codecs_coordinates_kernels.py",
        "worker/codecs/test_codecs_inceptionn.py",
        "worker/compressors/test_compressor_kernels.py",
        "worker/compressors/test_buckets.py",
        "worker/protocol/test_engine_rules.py",
        "worker/protocol/test_engine_growth.py",
        "-k",
        "engine or exponents or by_hand or no_encoding or ends or other_kinds or (odd_sizes and 64)",
    )
