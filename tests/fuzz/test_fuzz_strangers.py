"""Mutated frames beside a running job (strangers.py): its sums stay exact, and nothing of theirs is counted for it."""

from __future__ import annotations

from fuzz.strangers import Strangers


def test_a_job_stays_exact_among_mutated_frames() -> None:
    strangers = Strangers(seed=1)
    assert strangers.run(20_000) > 5
    assert strangers.rig.job_count("contributions") == strangers.contributions
    assert strangers.rig.job_count("duplicates") == 0
    reached = set(strangers.rig.drops())
    assert len(reached) >= 9, f"drop reasons seen: {sorted(reached)}"
