"""Hypothesis on every decoder: the project's own messages with anything done to them, and anything at all.

Only what a decoder documents may come out (targets.py), and each input is dealt with in well under `DEADLINE`.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.targets import TARGETS, Target
from rigs.limits import LIMIT_S

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
