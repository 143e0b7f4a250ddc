"""The search of all that a network can do, on small jobs; `make model` searches more."""

from __future__ import annotations

import pytest

from model import controller_plans
from model.controller import explore_controller
from model.hosts import HOST_MUTANTS, SMALL_SEARCHES, explore_hosts
from model.jobs import JOBS, MUTANTS, Searched
from model.memory import MEMORY_MUTANTS, MemoryRank, explore_memory
from model.ranks import Rank
from model.search import explore
from p4reduce.paths.hosts.sums import HostSums


@pytest.mark.parametrize("searched", JOBS, ids=lambda searched: searched.name)
def test_no_network_breaks_a_property(searched: Searched) -> None:
    for faults in searched.small:
        report = explore(searched.job(faults))
        assert report.broken == "" and report.complete, "\n".join([report.broken, *report.trace])
        assert report.nodes > 100 and report.equal_steps > 0


def test_a_slot_that_splits_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    (searched,) = (each for each in JOBS if "splits" in each.name)
    after, slots = Rank._after, set[int]()
    monkeypatch.setattr(Rank, "_after", lambda self, *of: (slots.add(of[1].slots), after(self, *of))[1])
    explore(searched.job(searched.small[0]))
    assert slots == {1, 2}


@pytest.mark.parametrize("searched", MUTANTS, ids=lambda searched: searched.name)
def test_a_mutant_is_caught(searched: Searched) -> None:
    for faults in searched.small:
        report = explore(searched.job(faults))
        assert report.broken and report.trace


@pytest.mark.fault('SIGKILL of controller and switch: reset, "the switch restarted"; the job forms again')
@pytest.mark.fault(
    "the controller's state is put back from a copy with an active job, or while the switch runs on: it clears the "
    "switch and sets the pipeline anew; sums are right"
)
@pytest.mark.parametrize("name", controller_plans.PLANS)
def test_no_event_breaks_a_property_of_the_controller(name: str) -> None:
    report = explore_controller(controller_plans.PLANS[name])
    assert report.broken == "", "\n".join([report.broken, *report.trace])
    assert report.situations > 20


@pytest.mark.parametrize("name", controller_plans.MUTANTS)
def test_a_mutant_of_the_controller_is_caught(name: str) -> None:
    plan, mutant = controller_plans.MUTANTS[name]
    with mutant:
        report = explore_controller(controller_plans.PLANS[plan])
    assert report.broken and report.trace


@pytest.mark.parametrize("searched", SMALL_SEARCHES, ids=str)
def test_no_order_of_steps_breaks_a_sum_over_hosts(searched: dict[str, int]) -> None:
    states, broken, way = explore_hosts(**searched)
    assert broken == "", way
    assert states > 800


@pytest.mark.parametrize("mutant", HOST_MUTANTS)
def test_a_mutant_of_the_sums_over_hosts_is_caught(mutant: type[HostSums]) -> None:
    _, broken, way = explore_hosts(1, host_sums=mutant)
    assert "got a wrong sum" in broken and way


def test_no_order_of_steps_breaks_a_sum_in_a_host_s_memory() -> None:
    states, broken, way = explore_memory()
    assert broken == "", way
    assert states > 100


@pytest.mark.parametrize("mutant", MEMORY_MUTANTS)
def test_a_mutant_of_the_sums_in_memory_is_caught(mutant: type[MemoryRank]) -> None:
    _, broken, way = explore_memory(mutant)
    assert "got a wrong sum" in broken and way
