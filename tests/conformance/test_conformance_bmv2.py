"""BMv2 itself, where it is installed: does it still answer as recorded? `make conformance` does this for every case."""

from __future__ import annotations

import pytest

from conformance import bmv2, recording, rows_groups
from conformance.corpus import all_cases
from conformance.embedded import EmbeddedTarget
from conformance.exceptions import ANY_ORDER
from conformance.replay import differences, replay

SAMPLE = (
    *("p4reduce_small_rows", "p4reduce_small_faults", "packet_io", "digest", "recirculate", "ternary_priority"),
    *(case.name for case in rows_groups.cases()),
)


@pytest.mark.bmv2
@pytest.mark.skipif(bmv2.SWITCH is None, reason="simple_switch_grpc is not on PATH")
@pytest.mark.parametrize("name", SAMPLE)
def test_bmv2_answers_as_recorded(name: str) -> None:
    known = recording.load(name)
    with bmv2.Bmv2Target() as target:
        fresh = replay(all_cases()[name], target, known.steps)
    assert not differences(known.steps, known.answers, fresh)


@pytest.mark.bmv2
@pytest.mark.skipif(bmv2.SWITCH is None, reason="simple_switch_grpc is not on PATH")
@pytest.mark.parametrize("name", sorted(ANY_ORDER))
def test_every_exception_for_any_order_is_needed(name: str) -> None:
    case = all_cases()[name]
    with EmbeddedTarget() as target:
        ours = replay(case, target)
    with bmv2.Bmv2Target() as bmv2_target:
        fresh = replay(case, bmv2_target)
    assert differences(case.steps, ours, fresh), f"the exception is not needed: {ANY_ORDER[name]}"
    assert not differences(case.steps, ours, fresh, any_order=True)
