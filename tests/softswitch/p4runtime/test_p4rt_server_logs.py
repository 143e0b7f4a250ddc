"""What the switch logs of its controllers and its program."""

from __future__ import annotations

import logging
import time
from typing import Any

import grpc
import pytest

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from rigs.limits import LIMIT_S
from rigs.p4rt import Raw, Served, config


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    """The fields of the events of that name so far."""
    return [record.__dict__["p4reduce_fields"] for record in list(caplog.records) if record.getMessage() == name]


def test_changes_of_primary_and_pipeline_are_logged(switch: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Raw(switch.address, (1, 2)) as raw:
        assert raw.arbitrate().status.code == 0
        raw.set_config(config=config())
    switch.server.stop()
    assert [fields["election_id"] for fields in events(caplog, "primary changed")] == [str((1 << 64) + 2)]
    (set_to,) = events(caplog, "pipeline set")
    assert set_to["tables"] > 0
    deadline = time.monotonic() + LIMIT_S
    while not events(caplog, "primary left") and time.monotonic() < deadline:  # its stream ends in a thread of its own
        time.sleep(0.01)
    assert len(events(caplog, "primary left")) == 1


def test_refusals_are_counted_each_and_logged_once(switch: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    query = p4r.WriteRequest(device_id=1)
    with Raw(switch.address) as raw:
        for _ in range(3):
            with pytest.raises(grpc.RpcError):
                raw.rpc.Write(query, timeout=LIMIT_S)
    assert switch.server.counters().refusals == {"PERMISSION_DENIED": 3}
    (told,) = events(caplog, "call refused")
    assert (told["call"], told["reason"]) == ("Write", "PERMISSION_DENIED")


def test_the_question_for_a_program_is_no_refusal(switch: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Raw(switch.address) as raw, pytest.raises(grpc.RpcError):
        raw.rpc.GetForwardingPipelineConfig(p4r.GetForwardingPipelineConfigRequest(device_id=1), timeout=LIMIT_S)
    assert not events(caplog, "call refused")
