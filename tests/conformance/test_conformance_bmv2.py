"""BMv2 itself, where it is installed: does it still answer as recorded? `make conformance` does this for every case."""

from __future__ import annotations

import pytest

from conformance import bmv2, recording, rows_groups
from conformance.corpus import all_cases
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
