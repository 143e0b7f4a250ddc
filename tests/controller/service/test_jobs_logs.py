"""What the controller logs of a job's life, and what it does not."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import ControllerFailedError, ForbiddenError, StoreError, UnknownJobError
from p4reduce_controller.registry.job import Job
from p4reduce_controller.service.store import Store
from p4reduce_runtime import logs
from rigs.fake_switch_client import Running, form


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    """The events that were logged so far, with their fields; without a pause, which a busy machine may cause."""
    return [
        (record.getMessage(), record.__dict__["p4reduce_fields"])
        for record in list(caplog.records)
        if "p4reduce_fields" in record.__dict__ and record.getMessage() != "controller was paused"
    ]


def test_the_events_of_a_job_are_logged_in_order(
    running: Running, client: JobClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client.create_job("train", 2, 4)
    tickets, _ = form(running, client, "train", 2)
    client.leave(tickets[1].nonce)
    client.remove_job("train")
    told = [(name, fields.get("rank"), fields.get("cause")) for name, fields in events(caplog)]
    assert told == [
        ("job created", None, None),
        ("rank joined", 0, None),
        ("rank joined", 1, None),
        ("job granted", None, None),
        ("job reset", None, "rank 1 left"),
        ("job removed", None, None),
    ]


def test_a_rank_without_heartbeats_is_a_warning_and_a_leaving_one_is_not(
    running: Running, client: JobClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client.create_job("train", 1)
    tickets, _ = form(running, client, "train", 1)
    client.leave(tickets[0].nonce)
    form(running, client, "train", 1)
    running.pass_time(100.0)
    resets = [record for record in caplog.records if record.getMessage() == "job reset"]
    assert [record.levelname for record in resets] == ["INFO", "WARNING"]
    assert "sent no heartbeat" in resets[1].__dict__["p4reduce_fields"]["cause"]


def test_refusals_are_logged_by_reason_at_a_limited_rate(
    running: Running, client: JobClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(5):
        with pytest.raises(UnknownJobError):
            client.join("nothing", 0, 1)
    client.create_job("mine", 1, 1, private=True)
    with pytest.raises(ForbiddenError):
        client.join("mine", 0, 1)
    refused = [fields for name, fields in events(caplog) if name == "call refused"]
    assert [(fields["call"], fields["reason"], fields["times"]) for fields in refused] == [
        ("Join", "UnknownJob", 1),
        ("Join", "Forbidden", 1),
    ]


def test_a_file_that_cannot_be_written_is_an_error(
    running: Running, client: JobClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: Store, job: Job) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(Store, "save", full)
    with pytest.raises(ControllerFailedError):
        client.create_job("mine", 1)
    assert [record.levelname for record in caplog.records if record.message == "call refused"] == ["ERROR"]


@pytest.mark.parametrize("formatter", [logs.PlainLine(), logs.JsonLine()])
def test_no_secret_is_in_any_line(
    running: Running, client: JobClient, caplog: pytest.LogCaptureFixture, formatter: logging.Formatter
) -> None:
    caplog.set_level(logging.DEBUG)
    made = client.create_job("mine", 2, 4, private=True)
    with JobClient(running.address, token=made.member_token) as member:
        tickets, leases = form(running, member, "mine", 2)
        running.client.restart()
        member.leave(tickets[0].nonce)
    with JobClient(running.address, token=made.owner_token) as owner:
        owner.remove_job("mine")
    secrets = {made.owner_token, made.member_token}
    for number in [ticket.nonce for ticket in tickets] + [lease.secret for lease in leases]:
        secrets |= {str(number), f"{number:x}", str(number.to_bytes(8, "big"))[2:-1]}
    lines = [formatter.format(record) for record in list(caplog.records)]
    assert any("job granted" in line for line in lines)
    assert not [line for line in lines if any(secret in line for secret in secrets)]
