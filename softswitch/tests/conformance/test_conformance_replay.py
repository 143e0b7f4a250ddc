"""The embedded switch against BMv2's recorded answers, and BMv2 itself, where it is: the same writes, the same frames.

`make conformance` compares BMv2 in every case.
"""

from __future__ import annotations

import pytest

from conformance import bmv2, recording
from conformance.corpus import GROUPS, all_cases
from conformance.embedded import EmbeddedTarget
from conformance.exceptions import ANY_ORDER, DIFFERENT
from conformance.replay import differences, replay

needs_bmv2 = pytest.mark.skipif(bmv2.SWITCH is None, reason="simple_switch_grpc is not on PATH")
CASES = all_cases()


@pytest.mark.parametrize("name", list(CASES))
def test_embedded_switch_answers_as_bmv2(name: str) -> None:
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
