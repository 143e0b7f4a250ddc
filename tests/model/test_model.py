"""The search of all that a network can do, on small jobs; `make model` searches more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from model import controller_plans
from model.controller import explore_controller
from model.jobs import JOBS, MUTANTS, Searched
from model.search import Faults, explore


@pytest.mark.parametrize("searched", JOBS, ids=lambda searched: searched.name)
def test_no_network_breaks_a_property(searched: Searched) -> None:
    for faults in searched.small:
        report = explore(searched.job(faults))
        assert report.broken == "" and report.complete, "\n".join([report.broken, *report.trace])
        assert report.nodes > 100 and report.equal_steps > 0


@pytest.mark.parametrize("searched", MUTANTS, ids=lambda searched: searched.name)
def test_a_mutant_is_caught(searched: Searched) -> None:
    for faults in searched.small:
        report = explore(searched.job(faults))
        assert report.broken and report.trace


@pytest.mark.parametrize("name", controller_plans.PLANS)
def test_no_event_breaks_a_property_of_the_controller(name: str) -> None:
    report = explore_controller(controller_plans.PLANS[name])
    assert report.broken == "", "\n".join([report.broken, *report.trace])
    assert report.situations > 20


@pytest.mark.parametrize("mutant", controller_plans.MUTANTS)
def test_a_mutant_of_the_controller_is_caught(mutant: Callable[[], AbstractContextManager[None]]) -> None:
    with mutant():
        report = explore_controller(controller_plans.PLANS[controller_plans.MUTANTS[mutant]])
    assert report.broken and report.trace


def test_without_faults_a_job_has_no_other_end_than_its_results() -> None:
    report = explore(JOBS[0].job(Faults()))
    assert report.complete and not report.broken
