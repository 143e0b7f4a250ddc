"""The controller's metrics, scraped over HTTP while its switch is in memory."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import UnknownJobError
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_controller import config as configuration
from p4reduce_controller.config import Config
from p4reduce_controller.registry.links import SILENT_AFTER
from p4reduce_controller.service.metrics import KEPT_S
from p4reduce_controller.switches import reconciler
from p4reduce_controller.switches.program_names import V1MODEL
from p4reduce_runtime import metrics
from rigs.fake_switch_client import RACKS, Running, create_and_form, form, form_at, with_tree
from rigs.limits import LIMIT_S

NETWORKS = {"one_switch": ({ONLY_SWITCH: ""}, [ONLY_SWITCH] * 2), "tree": (RACKS, ["leaf1", "leaf2"])}
"""Switches with their parents, and those of two ranks."""
Scraped = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture
def config(config: Config, request: pytest.FixtureRequest) -> Config:
    """The configuration of one switch, or of a tree of those that a parameter gives with their parents."""
    return with_tree(
        configuration.override(config, metrics="127.0.0.1:0"), getattr(request, "param", {ONLY_SWITCH: ""})
    )


def scrape(running: Running) -> Scraped:
    """Return every value by the metric's name and its labels' values; what was read from the switch is fresh."""
    running.clock.now += KEPT_S
    with urllib.request.urlopen(f"http://{running.controller.metrics_address}/", timeout=LIMIT_S) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(("config", "at"), NETWORKS.values(), indirect=["config"], ids=NETWORKS)
def test_metrics_of_a_job_and_its_counters(running: Running, client: JobClient, at: list[str]) -> None:
    job = client.create_job("train", 2, 4)
    form_at(running, client, "train", at)
    for first, switch in enumerate(running.clients.values()):
        for number, counter in enumerate(V1MODEL.job_counters, 10 * first):
            switch.counters[V1MODEL.job_counters[counter], job.id] = (number, 100 * number)
        switch.counters[V1MODEL.drops, 1] = (9 + first, 900)
    found = scrape(running)
    assert {name: value for (name, labels), value in found.items() if labels == ("train",)} == {
        "p4reduce_job_ranks": 2,
        "p4reduce_job_members": 2,
        "p4reduce_job_switches": len(running.clients),
        "p4reduce_job_silence_seconds": KEPT_S,
    }
    numbers = dict(zip(V1MODEL.job_counters, range(5), strict=True))
    for first, name in enumerate(running.clients):
        counted = {counter: 10 * first + number for counter, number in numbers.items()}
        assert {metric: value for (metric, labels), value in found.items() if labels == ("train", name)} == {
            "p4reduce_job_rounds_total": counted["results"],
            "p4reduce_job_contribution_frames_total": counted["contributions"],
            "p4reduce_job_contribution_bytes_total": 100 * counted["contributions"],
            "p4reduce_job_duplicate_frames_total": counted["duplicates"],
            "p4reduce_job_duplicate_bytes_total": 100 * counted["duplicates"],
            "p4reduce_job_pending_frames_total": counted["pendings"],
            "p4reduce_job_parent_frames_total": counted["parent_answers"],
            "p4reduce_job_parent_bytes_total": 100 * counted["parent_answers"],
        }
    dropped = {labels: n for (metric, labels), n in found.items() if metric == metrics.DROP_FRAMES.name and n}
    assert dropped == {("TRUNCATED", name): 9 + first for first, name in enumerate(running.clients)}
    assert found["p4reduce_controller_jobs", ("ACTIVE",)] == 1
    assert found["p4reduce_controller_free_slots", ()] == 12
    assert found["p4reduce_controller_joins_total", ()] == 2
    assert found["p4reduce_controller_grants_total", ()] == 1


@pytest.mark.fault("names of private jobs in metrics: the job's id instead of the name")
def test_a_private_job_has_a_number_instead_of_its_name(running: Running, client: JobClient) -> None:
    client.create_job("open", 1, 4)
    made = client.create_job("confidential", 1, 4, private=True)
    with JobClient(running.address, token=made.member_token) as member:
        _, (lease,) = form(running, member, "confidential", 1)
    found = scrape(running)
    labels = {labels for (name, labels) in found if name.startswith("p4reduce_job_")}
    assert {name for name, *_ in labels} == {"open", f"private:{made.id}"}
    assert found["p4reduce_job_members", (f"private:{made.id}",)] == 1
    assert lease.private, "so that the rank's own metrics have the same label"
    with urllib.request.urlopen(f"http://{running.controller.metrics_address}/", timeout=LIMIT_S) as answer:
        assert b"confidential" not in answer.read()


def test_resets_by_cause_and_refusals_by_reason(running: Running, client: JobClient) -> None:
    tickets, _ = create_and_form(running, client, "train", 1)
    client.leave(tickets[0].nonce)
    form(running, client, "train", 1)
    running.pass_time(100.0)
    form(running, client, "train", 1)
    client.remove_job("train")
    with pytest.raises(UnknownJobError):
        client.get_job("other")
    found = scrape(running)
    resets = {labels[0]: value for (name, labels), value in found.items() if name == metrics.RESETS.name}
    assert resets == {"rank left": 1, "rank silent": 1, "job removed": 1}
    assert found["p4reduce_controller_refused_calls_total", ("GetJob", "UnknownJob")] == 1


@pytest.mark.fault(
    "a scrape by Prometheus while the switch is unavailable: `p4reduce_controller_switch_up` is 0, and the rest "
    "is answered"
)
@pytest.mark.parametrize("config", [RACKS], indirect=True)
def test_metrics_of_a_tree_lack_only_those_of_the_lost_switch(
    running: Running, client: JobClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_job("train", 2)
    form_at(running, client, "train", ["leaf1", "leaf2"])
    monkeypatch.setattr(reconciler, "_LINK_HELLO_S", LIMIT_S)  # or the other link is silent too, after 5 s
    monkeypatch.setattr(reconciler, "_LOST_AFTER_S", LIMIT_S)  # or that of the lost switch is forgotten, after 1 s
    running.clients["leaf1"].reachable = False
    found = scrape(running)
    running.clients["leaf2"].cables.clear()
    for _ in range(SILENT_AFTER):
        running.call(lambda: running.controller.registry.link_hellos_sent("leaf2"))
    silent = scrape(running)
    up = {labels[0]: value for (name, labels), value in found.items() if name == metrics.SWITCH_UP.name}
    assert up == {"root": 1, "leaf1": 0, "leaf2": 1}
    name = metrics.LINK_UP.name
    assert [found[name, (leaf,)] for leaf in ("leaf1", "leaf2")] == [1, 1] and (name, ("root",)) not in found
    assert [silent[name, (leaf,)] for leaf in ("leaf1", "leaf2")] == [1, 0]
    assert [labels for name, labels in found if name == metrics.JOB_ROUNDS.name] == [
        ("train", "root"), ("train", "leaf2")
    ]  # fmt: skip
    assert {labels[1] for name, labels in found if name == metrics.DROP_FRAMES.name} == {"root", "leaf2"}


def test_scrapes_read_the_switch_at_a_limited_rate(running: Running, client: JobClient) -> None:
    job = client.create_job("train", 1)
    form(running, client, "train", 1)
    cell = (V1MODEL.job_counters["results"], job.id)
    assert scrape(running)["p4reduce_job_rounds_total", ("train", "switch")] == 0
    running.client.counters[cell] = (5, 500)
    running.clock.now -= KEPT_S  # the next scrape finds the time of the last one
    assert scrape(running)["p4reduce_job_rounds_total", ("train", "switch")] == 0
    assert scrape(running)["p4reduce_job_rounds_total", ("train", "switch")] == 5
