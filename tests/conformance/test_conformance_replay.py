"""The embedded switch against BMv2's recorded answers: the same P4Runtime writes, the same frames."""

from __future__ import annotations

import pytest

from conformance import recording
from conformance.corpus import all_cases
from conformance.embedded import EmbeddedTarget
from conformance.exceptions import ANY_ORDER, DIFFERENT
from conformance.replay import differences, replay

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


@pytest.mark.parametrize("name", list(CASES))
def test_the_recording_is_of_this_corpus(name: str) -> None:
    assert recording.load(name).steps == CASES[name].steps, "the corpus has changed; run `make conformance`"
