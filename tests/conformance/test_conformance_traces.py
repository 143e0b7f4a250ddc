"""What the embedded switch tells of each packet, against BMv2's recorded log; a trace changes no answer."""

from __future__ import annotations

import pytest

from conformance import recording, traces
from conformance.corpus import small_programs
from conformance.exceptions import ANY_ORDER, DIFFERENT
from conformance.replay import differences

CASES = small_programs()
RECORDED = traces.recorded()
OTHERWISE = {
    **DIFFERENT,
    "masked_key": "keys in an invalid header: 0 here, an earlier packet's on BMv2",
    "varbit": "conditions over an invalid header: 0 here, an earlier packet's on BMv2",
}
"""Cases in which the steps differ, and why."""


def test_every_small_program_is_recorded() -> None:
    assert set(RECORDED) == set(CASES)
    assert len(RECORDED) >= 100


@pytest.mark.parametrize("name", list(CASES))
def test_steps_are_those_of_bmv2(name: str) -> None:
    digests, theirs = RECORDED[name]
    assert digests == CASES[name].digests(), "another build of the program: run `make conformance` where BMv2 is"
    ours, answers = traces.of_embedded_switch(CASES[name])
    known = recording.load(name)
    assert name in DIFFERENT or not differences(known.steps, answers, known.answers, any_order=name in ANY_ORDER)
    if name in OTHERWISE:
        assert ours != theirs, f"the exception is not needed: {OTHERWISE[name]}"
    else:
        assert ours == theirs
