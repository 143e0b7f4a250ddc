"""The embedded switch against BMv2's recorded answers, and BMv2 itself, where it is: the same writes, the same frames.

`make conformance` compares BMv2 in every case.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from conformance import bmv2, recording
from conformance.case import Write
from conformance.corpus import GROUPS, all_cases, p4reduce_program
from conformance.embedded import EmbeddedTarget
from conformance.exceptions import ANY_ORDER, DIFFERENT
from conformance.network import Network
from conformance.replay import Target, differences, replay
from p4reduce_contracts import wire

needs_bmv2 = pytest.mark.skipif(bmv2.SWITCH is None, reason="simple_switch_grpc is not on PATH")
CASES = all_cases()


@pytest.mark.parametrize("name", list(CASES))
def test_embedded_switch_answers_as_bmv2(name: str) -> None:
    assert name in recording.names(), f"{name} is not recorded; run `make conformance` where BMv2 is"
    known = recording.load(name)
    assert known.digests == CASES[name].digests(), (
        f"{name} was recorded with another build of its program; run `make conformance` where BMv2 is"
    )
    with EmbeddedTarget() as target:
        ours = replay(CASES[name], target, known.steps)
    found = differences(known.steps, ours, known.answers, any_order=name in ANY_ORDER)
    if name in DIFFERENT:
        assert found, f"the exception of {name} is not needed: {DIFFERENT[name]}"
    else:
        assert not found, "\n".join(found)


@pytest.mark.parametrize("name", list(p4reduce_program()))
def test_the_recording_is_of_this_corpus(name: str) -> None:
    assert recording.load(name).steps == CASES[name].steps, "the corpus has changed; run `make conformance`"


SAMPLE = (
    *("p4reduce_small_rows", "p4reduce_small_faults", "packet_io", "digest", "recirculate", "ternary_priority"),
    *GROUPS,
)


@pytest.mark.bmv2
@needs_bmv2
@pytest.mark.parametrize("name", SAMPLE)
def test_bmv2_answers_as_recorded(name: str) -> None:
    known = recording.load(name)
    with bmv2.Bmv2Target() as target:
        fresh = replay(all_cases()[name], target, known.steps)
    assert not differences(known.steps, known.answers, fresh)


@pytest.mark.bmv2
@needs_bmv2
@pytest.mark.parametrize("name", sorted(ANY_ORDER))
def test_every_exception_for_any_order_is_needed(name: str) -> None:
    case = all_cases()[name]
    with EmbeddedTarget() as target:
        ours = replay(case, target)
    with bmv2.Bmv2Target() as bmv2_target:
        fresh = replay(case, bmv2_target)
    assert differences(case.steps, ours, fresh), f"the exception is not needed: {ANY_ORDER[name]}"
    assert not differences(case.steps, ours, fresh, any_order=True)


@pytest.mark.parametrize(
    "target_of",
    [EmbeddedTarget, pytest.param(bmv2.Bmv2Target, marks=[pytest.mark.bmv2, needs_bmv2])],
    ids=["embedded", "bmv2"],
)
def test_a_commit_gives_fresh_registers(target_of: Callable[[], AbstractContextManager[Target]]) -> None:
    """Committing the pipeline again gives fresh registers: what a controller that starts relies on."""
    network = Network("small", 2)
    admissions = [network.admission(rank) for rank in (0, 1)]
    entries = tuple(("insert", entry) for entry in [*network.switching(), *network.job(), *admissions])
    keys = (wire.KEY_NONE,) * network.geometry.columns
    contribution = network.contribution(0, 0, 7, keys, {0: bytes(network.geometry.block_bytes)})
    case = network.case("fresh_registers", [Write(entries), contribution, contribution])
    with target_of() as target:
        first = replay(case, target).steps
        assert first[1] == () and len(first[2]) == 1, "a contribution is taken in, its duplicate answered with PENDING"
        assert replay(case, target).steps == first, "the contribution of before the commit must be forgotten"
