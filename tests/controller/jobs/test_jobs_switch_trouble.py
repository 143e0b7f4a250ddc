"""A switch that hangs, or comes back with its counters at 0: no call waits long, and the stats stay right."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from p4reduce_contracts.jobs.answers import Count
from p4reduce_contracts.jobs.client import JobClient, SwitchAwayError
from p4reduce_controller.config import Config
from p4reduce_controller.jobs import reconciler
from p4reduce_runtime.p4runtime.errors import ReadError, SwitchUnreachableError
from rigs.fake_switch_client import Running, form, serving
from rigs.limits import LIMIT_S

CONTRIBUTIONS = "MainIngress.contributions"


@pytest.fixture
def probed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a controller that starts after it."""
    monkeypatch.setattr(reconciler, "_PROBE_INTERVAL_S", 0.02)


@pytest.fixture
def hanging(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A controller whose switch can be made to hang (`client.answering`); it goes on at the end."""
    monkeypatch.setattr(reconciler, "_ANSWER_LIMIT_S", 2.0)
    yield running
    running.client.answering.set()


def contributions(client: JobClient) -> Count:
    return client.stats("train").jobs[0].contributions


def test_the_first_connection_sets_the_pipeline_and_later_ones_only_another(config: Config) -> None:
    with serving(config) as running:
        switch = running.client
        assert switch.commits == 1
        switch.lose()
        running.wait(lambda: switch.connections == 2 and not running.controller.switches.unavailable_reason())
        assert switch.commits == 1
        switch.restart()
        running.wait(lambda: switch.connections == 3 and not running.controller.switches.unavailable_reason())
        assert switch.commits == 2
    with serving(config, switch):
        assert switch.commits == 2, "the cookie says that the registers hold this controller's epochs only"


def test_counts_of_a_job_continue_after_the_switch_loses_its_counters(running: Running, client: JobClient) -> None:
    switch = running.client
    switch.counters[CONTRIBUTIONS, 1] = (10, 1000)
    client.create_job("train", 1)
    form(running, client, "train", 1)
    switch.counters[CONTRIBUTIONS, 1] = (12, 1200)
    assert contributions(client) == Count(2, 200)
    switch.entries.clear()
    switch.counters.clear()
    switch.lose()
    running.wait(lambda: switch.connections == 2 and not running.controller.switches.unavailable_reason())
    assert contributions(client) == Count(0, 0)
    form(running, client, "train", 1)
    switch.counters[CONTRIBUTIONS, 1] = (4, 400)
    assert contributions(client) == Count(4, 400)


def test_counts_are_never_negative() -> None:
    assert Count(3, 500) - Count(10, 200) == Count(0, 300)


def test_a_job_is_made_and_removed_while_the_switch_hangs(hanging: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The calls end before the switch does; of those to the controller only the removal waits for it, 2 s at most."""

    def waits() -> list[float]:
        records = [record for record in caplog.records if record.getMessage() == "switch slow"]
        return [record.__dict__["p4reduce_fields"]["waited_s"] for record in records]

    hanging.client.timeout_s = 10 * LIMIT_S
    with JobClient(hanging.address, timeout_s=LIMIT_S) as client:
        client.create_job("train", 1, slots=4)
        form(hanging, client, "train", 1)
        hanging.client.answering.clear()
        client.create_job("other", 1)
        assert waits() == []
        with pytest.raises(SwitchAwayError, match="gave no answer within 2 s"):
            client.stats("train")
        client.remove_job("train")
        assert waits() == [2.0]
        assert [job.name for job in client.list_jobs().jobs] == ["other"]


def test_a_probe_without_an_answer_ends_the_connection(
    probed_often: None, hanging: Running, client: JobClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_job("train", 1)
    tickets, _ = form(hanging, client, "train", 1)
    monkeypatch.setattr(reconciler, "_PROBE_LIMIT_S", 0.05)
    hanging.client.timeout_s = 0.2
    hanging.client.answering.clear()
    hanging.wait(lambda: not hanging.controller.registry.get("train").active)
    assert client.heartbeat(tickets[0].nonce) == (True, reconciler.RESTARTED)
    monkeypatch.undo()  # from here on no probe may fail
    hanging.client.answering.set()
    hanging.wait(lambda: not hanging.controller.switches.unavailable_reason())
    form(hanging, client, "train", 1)


def test_the_next_try_to_connect_follows_at_once_after_one_that_waited_for_the_switch(
    hanging: Running, caplog: pytest.LogCaptureFixture
) -> None:
    switch = hanging.client
    switch.timeout_s = 2 * reconciler._FIRST_PAUSE_S
    switch.answering.clear()
    hanging.call(switch.lose)
    hanging.wait(lambda: "switch not reached" in caplog.messages)
    switch.answering.set()
    hanging.wait(lambda: not hanging.controller.switches.unavailable_reason())
    (first, *_) = [record for record in caplog.records if record.getMessage() == "switch not reached"]
    assert first.__dict__["p4reduce_fields"]["next_try_s"] == 0


def test_controllers_that_take_over_from_each_other_back_off(
    running: Running, client: JobClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_job("train", 1)
    tickets, _ = form(running, client, "train", 1)
    for times in range(4):
        running.wait(lambda times=times: running.client.connections == 1 + times)  # type: ignore[misc]
        running.wait(lambda: not running.controller.switches.unavailable_reason())
        assert running.client.on_primary is not None
        running.client.on_primary(False)
    running.wait(lambda: running.client.connections == 5)
    taken = [
        record.__dict__["p4reduce_fields"]
        for record in caplog.records
        if record.getMessage() == "switch taken by another controller"
    ]
    assert [fields["back_in_s"] for fields in taken] == [0.0, 0.1, 0.3, 0.7]
    assert [bool(fields["advice"]) for fields in taken] == [False, True, True, True]
    assert client.heartbeat(tickets[0].nonce) == (False, ""), "no entry was changed, so the job goes on"


@pytest.mark.parametrize(
    ("error", "times", "lost"),
    [
        (SwitchUnreachableError("no answer"), reconciler._PROBE_FAILURES - 1, False),
        (SwitchUnreachableError("no answer"), reconciler._PROBE_FAILURES, True),
        (ReadError("UNIMPLEMENTED"), 2 * reconciler._PROBE_FAILURES, False),
    ],
)
def test_a_connection_is_lost_after_a_number_of_failed_probes(
    config: Config, monkeypatch: pytest.MonkeyPatch, error: Exception, times: int, lost: bool
) -> None:
    monkeypatch.setattr(reconciler, "_PROBE_INTERVAL_S", 0.01)
    failures = [error] * times

    def capabilities() -> str:
        if failures:
            raise failures.pop()
        return "1.3.0"

    with serving(config) as running:
        running.client.capabilities = capabilities  # type: ignore[method-assign]
        deadline = time.monotonic() + LIMIT_S
        while (failures or running.client.connections < 1 + lost) and time.monotonic() < deadline:
            time.sleep(0.01)
        running.call(lambda: None)
        assert not failures
        assert running.client.connections == 1 + lost
