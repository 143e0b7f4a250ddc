"""The same mutated frames to BMv2 and to the embedded switch: what leaves, counters and packet-ins are equal.

Here the mutated frames may hold a rank's secret: deep faults reach the program's registers on both.
"""

from __future__ import annotations

import random

import pytest

from conformance import bmv2
from conformance.case import Arrive, Step
from conformance.embedded import EmbeddedTarget
from conformance.replay import differences, replay
from fuzz.mutations import mutated
from rigs.recorded.network import Network
from rigs.recorded.random_traffic import Traffic, written

FRAMES = 3_000
RANKS = 4


def steps(network: Network, seed: int) -> list[Step]:
    """The job's entries, then FRAMES frames: real ones of a random job, and two mutated ones for each of them."""
    source = random.Random(seed)
    found, real = written(network), []
    for step in Traffic(network, f"fuzz {seed}").frames(FRAMES // 3):
        assert isinstance(step, Arrive)
        found.append(step)
        real = [*real[-64:], step.frame]
        for _ in range(2):
            port = step.port if source.random() < 0.7 else source.randint(1, RANKS)
            found.append(Arrive(port, mutated(source, real, RANKS)))
    return found


@pytest.mark.fault("mutated frames with a rank's secret: BMv2 and the embedded switch answer alike")
@pytest.mark.bmv2
@pytest.mark.slow
@pytest.mark.skipif(bmv2.SWITCH is None, reason="simple_switch_grpc is not on PATH")
@pytest.mark.parametrize("seed", [1, 2])
def test_bmv2_and_the_embedded_switch_agree(seed: int) -> None:
    network = Network("small", RANKS)
    case = network.case("fuzzed", steps(network, seed))
    with EmbeddedTarget() as target:
        ours = replay(case, target)
    with bmv2.Bmv2Target() as target:
        theirs = replay(case, target)
    assert not differences(case.steps, ours, theirs)
    assert sum(map(len, ours.steps)) > FRAMES / 3, "hardly anything came out"
