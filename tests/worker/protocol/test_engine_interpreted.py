"""The kernels interpreted, as with P4REDUCE_KERNELS=off: the same frames, counts, times and sums as compiled."""

from __future__ import annotations

import pytest

from p4reduce_runtime import kernels
from rigs import random_traffic
from rigs.kernels import interpreted, passes_interpreted

TRAFFIC = [(seed, harm) for seed in range(8) for harm in (0.0, 0.02, 0.15)]


@pytest.mark.skipif(not kernels.compiles(), reason="kernels are not compiled")
def test_interpreted_and_compiled_do_the_same_with_random_traffic() -> None:
    arguments = [f"{seed}:{harm}" for seed, harm in TRAFFIC]
    found = interpreted("-m", "rigs.random_traffic", *arguments).split()
    assert found == [random_traffic.play(seed, harm) for seed, harm in TRAFFIC]


def test_the_rules_hold_interpreted() -> None:
    passes_interpreted("worker/protocol/test_engine_rules.py", "worker/protocol/test_engine_growth.py")
