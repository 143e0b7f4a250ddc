"""What the controller logs of a job's life, and what it does not."""

from __future__ import annotations

import logging
from unittest.mock import Mock

import pytest

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import ControllerFailedError, ForbiddenError, StoreError, UnknownJobError
from p4reduce_controller.service.store import Store
from p4reduce_runtime import logs
from rigs.fake_switch_client import Running, form


def test_refusals_are_logged_once_a_reason_and_a_full_disk_is_an_error(
    client: JobClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    client.create_job("mine", 1, 1, private=True)
    for job, error in (("nothing", UnknownJobError), ("nothing", UnknownJobError), ("mine", ForbiddenError)):
        with pytest.raises(error):
            client.join(job, 0, 1)
    monkeypatch.setattr(Store, "save", Mock(side_effect=StoreError("the disk is full")))
    with pytest.raises(ControllerFailedError):
        client.create_job("another", 1, 1)
    refused = [record for record in caplog.records if record.message == "call refused"]
    told = [(record.levelname, record.__dict__["p4reduce_fields"]["reason"]) for record in refused]
    assert told == [("INFO", "UnknownJob"), ("INFO", "Forbidden"), ("ERROR", "StoreError")]


def test_a_rank_without_heartbeats_is_a_warning_and_a_leaving_one_is_not(
    running: Running, client: JobClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client.create_job("train", 1)
    tickets, _ = form(running, client, "train", 1)
    client.leave(tickets[0].nonce)
    form(running, client, "train", 1)
    running.pass_time(100.0)
    assert [one.levelname for one in caplog.records if one.message == "job reset"] == ["INFO", "WARNING"]


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
    for number in [ticket.nonce for ticket in tickets] + [lease.switches[0].secret for lease in leases]:
        secrets |= {str(number), f"{number:x}", str(number.to_bytes(8, "big"))[2:-1]}
    lines = [formatter.format(record) for record in list(caplog.records)]
    assert any("job granted" in line for line in lines)
    assert not [line for line in lines if any(secret in line for secret in secrets)]
