"""Hypothesis and atheris on every decoder, and mutated frames beside a job (foreign_frames.py); `make fuzz`: longer.

Only what a decoder documents may come out (targets.py), of the project's own messages with anything done to them and
of anything at all, and each input is dealt with in well under `DEADLINE`.
"""

from __future__ import annotations

import importlib.util
import random
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance import bmv2
from conformance.case import Arrive, Step
from conformance.embedded import EmbeddedTarget
from conformance.replay import differences, replay
from fuzz import coverage_guided
from fuzz.foreign_frames import ForeignFrames
from fuzz.mutations import mutated
from fuzz.targets import TARGETS, Target
from rigs.limits import LIMIT_S
from rigs.recorded.network import Network
from rigs.recorded.random_traffic import Traffic, written

DEADLINE = timedelta(seconds=LIMIT_S)
"""The limit for an input that never ends; far above what the slowest input takes on a busy machine."""
EXAMPLES = {"pipeline-json": 40, "p4info-text": 40}
"""Target -> number of examples, where an input takes milliseconds: fewer than elsewhere."""


@st.composite
def edited(draw: st.DrawFn, target: Target, seeds: list[bytes]) -> bytes:
    """A seed with up to six edits: bytes turned over, cut out, doubled, put in; words of the language at any place."""
    data = bytearray(draw(st.sampled_from(seeds)))
    words = st.sampled_from(target.words) if target.words else st.nothing()
    new = st.binary(max_size=4) | words | st.sampled_from([b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff"])
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from([0, 0, 1, 2, 4, 8, 30])))
        if draw(st.booleans()) and end > start:
            data[start:end] = bytes(byte ^ draw(st.integers(0, 255)) for byte in data[start:end])
        else:
            data[start:end] = draw(new | st.just(bytes(data[start:end] * 2)))
    return bytes(data)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_seed_is_accepted(name: str) -> None:
    taken = [TARGETS[name].run(seed) for seed in TARGETS[name].seeds()]
    assert any(taken)


@pytest.mark.fault("any bytes for any decoder: its documented error")
@pytest.mark.parametrize("name", sorted(TARGETS))
@pytest.mark.slow
def test_only_documented_errors(name: str) -> None:
    target = TARGETS[name]

    @settings(
        max_examples=EXAMPLES.get(name, 100),
        deadline=DEADLINE,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large],
    )
    @given(edited(target, target.seeds()) | st.binary(max_size=200))
    def holds(data: bytes) -> None:
        target.run(data)

    holds()


@pytest.mark.parametrize(("name", "word"), [(name, word) for name in sorted(TARGETS) for word in TARGETS[name].words])
def test_every_dictionary_word_alone_and_as_a_value(name: str, word: bytes) -> None:
    target = TARGETS[name]
    target.run(word)
    for seed in target.seeds()[:1]:
        for mark in (b" = ", b": ", b"[", b"("):
            at = seed.find(mark)
            if at >= 0:
                after = seed.find(b"\n", at) if b"\n" in seed[at:] else seed.find(b",", at)
                target.run(seed[: at + len(mark)] + word + seed[after if after >= 0 else len(seed) :])


@pytest.mark.fault(
    "mutated frames of a running job, without its secret, up and down, also those of its other switch: dropped and "
    "counted, not answered"
)
def test_the_sums_of_a_job_are_exact_among_mutated_frames() -> None:
    foreign = ForeignFrames(seed=1)
    assert foreign.run(20_000) > 5
    assert sum(rig.job_count("contributions") for rig in foreign.rigs) == foreign.contributions
    assert all(rig.job_count("contributions") > 0 == rig.job_count("duplicates") for rig in foreign.rigs)
    reached = set(foreign.drops())
    assert len(reached) >= 9, f"drop reasons seen: {sorted(reached)}"


RUNS = {
    "frame": 5_000,
    "pipeline-frame": 3_000,
    "pipeline-json": 150,
    "lease": 5_000,
    "saved-job": 2_000,
    "controller-toml": 1_000,
}


@pytest.mark.fault("bytes for any decoder, guided by coverage: its documented error")
@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="there is no atheris for this Python")
def test_only_documented_errors_guided_by_coverage() -> None:
    with coverage_guided.instrumented() as server:
        for name, runs in RUNS.items():
            done = coverage_guided.fuzz(server, name, runs=runs, seconds=LIMIT_S)
            assert done.ok, done.log
            assert done.runs == runs, done.log


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
