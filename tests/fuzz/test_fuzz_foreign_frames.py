"""Mutated frames beside a running job (foreign_frames.py): its sums stay exact, and none is counted for it."""

from __future__ import annotations

import pytest

from fuzz.foreign_frames import ForeignFrames


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
