"""A switch that hangs: no call waits long for it, and it is used again when it answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import SwitchAwayError
from p4reduce_controller.config import Config
from p4reduce_controller.switches import connection, reconciler
from p4reduce_runtime.p4runtime.errors import ReadError
from rigs.fake_switch_client import Running, form, serving
from rigs.limits import LIMIT_S


@pytest.fixture
def probed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a short interval of probes, for a controller that starts after it."""
    monkeypatch.setattr(connection, "PROBE_INTERVAL_S", 0.02)


@pytest.fixture
def hanging(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A controller whose switch can be made to hang (`client.answering`); it goes on at the end."""
    monkeypatch.setattr(reconciler, "_ANSWER_LIMIT_S", 2.0)
    yield running
    running.client.answering.set()


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


@pytest.mark.fault(
    'the switch is stopped for longer than the probes: reset, "lost the switch"; used again when it continues'
)
def test_a_probe_without_an_answer_ends_the_connection(
    probed_often: None, hanging: Running, client: JobClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_job("train", 1)
    tickets, _ = form(hanging, client, "train", 1)
    monkeypatch.setattr(reconciler, "_PROBE_LIMIT_S", 0.05)
    hanging.client.timeout_s = 0.2
    hanging.client.answering.clear()
    hanging.wait(lambda: not hanging.controller.registry.get("train").active)
    assert client.heartbeat(tickets[0].nonce) == reconciler.LOST
    monkeypatch.undo()  # from here on no probe may fail
    hanging.client.answering.set()
    hanging.wait(lambda: not hanging.controller.switches.unavailable_reason())
    form(hanging, client, "train", 1)


def test_a_switch_that_refuses_probes_is_not_lost(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know the call, but it answers."""
    monkeypatch.setattr(connection, "PROBE_INTERVAL_S", 0.01)
    probes = threading.Semaphore(0)

    def capabilities() -> str:
        probes.release()
        raise ReadError("UNIMPLEMENTED")

    with serving(config) as running:
        running.client.capabilities = capabilities  # type: ignore[method-assign]
        for _ in range(2 * connection.PROBE_FAILURES):
            assert probes.acquire(timeout=LIMIT_S)
        assert running.client.connections == 1
