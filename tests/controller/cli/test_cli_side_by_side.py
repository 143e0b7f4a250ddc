"""What the commands show of a job over switches side by side."""

from __future__ import annotations

import json

import pytest

from p4reduce_contracts.jobs.answers import JoinTicket, WaitingSlot
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_controller.cli import trace_view
from p4reduce_controller.config import Config
from p4reduce_controller.switches.program_names import V1MODEL
from rigs.fake_switch_client import SIDE_BY_SIDE, Running, join_side_by_side, rows, shown, with_switches_side_by_side
from rigs.limits import LIMIT_S


@pytest.fixture
def config(config: Config) -> Config:
    return with_switches_side_by_side(config)


@pytest.fixture
def tickets(running: Running) -> list[JoinTicket]:
    """The join tickets of the job "train", with slots at the switches b, c and a."""
    shown(running, "job", "create", "train", "--world-size", "2", "--slots", "4", "--switches", "3")
    with JobClient(running.address) as client:
        joined = join_side_by_side(running, client, "train", 2)
        client.wait_lease(joined[0].nonce, LIMIT_S)
    return joined


def test_job_show_shows_the_switches_and_where_a_slot_waits(running: Running, tickets: list[JoinTicket]) -> None:
    with JobClient(running.address) as client:
        client.heartbeat(tickets[0].nonce, WaitingSlot(7, 9, 0b10, 3.0, 1))
    text = shown(running, "job", "show", "train", "--slots")
    assert "ACTIVE, epoch 1, slots 0..3 at each of 3 switches, at most 3 switches\n" in text
    switches, _, rest = text.partition("MAC")
    assert "12 slots in all" in switches
    assert rows(switches, "b") == [["b", "127.0.0.1:4002", "0..3", "-"]]
    assert rows(switches, "c") == [["c", "127.0.0.1:4003", "4..7", "rank 1"]]
    assert rows(switches, "a") == [["a", "127.0.0.1:4001", "8..11", "-"]]
    members, waits = rest.split("Waiting, at the last heartbeat")
    places = [cells[:2] + cells[3:5] for cells in rows(members, "1")]
    assert places == [["1", "10.0.0.11:4001", name, "2"] for name in SIDE_BY_SIDE]
    assert rows(waits, "0") == [["0", "1", "7 (3 of c)", "9", "3.0", "c waits for rank 1"]]
    found = json.loads(shown(running, "job", "show", "train", "--json"))
    assert found["switches"] == 3 and [level["switch"] for level in found["tree"]] == ["b", "c", "a"]


def test_the_other_commands_have_each_switch(running: Running, tickets: list[JoinTicket]) -> None:
    for number, client in enumerate(running.clients.values(), 1):
        client.counters[V1MODEL.job_counters["results"], tickets[0].job_id] = (number, 100)
    assert rows(shown(running, "job", "list"), "train")[0][6:8] == ["0..3", "3"]
    assert [cells[2:7:4] for cells in rows(shown(running, "stats"), "train")] == [["a", "1"], ["b", "2"], ["c", "3"]]
    top = rows(shown(running, "top", "--once", "--every", "0.1"), "train")
    assert [cells[:3] for cells in top] == [["train", name, "ACTIVE"] for name in SIDE_BY_SIDE]
    text = shown(running, "controller", "switches")
    assert rows(text, "b") == [["b", "127.0.0.1:10001", "127.0.0.1:4002", "-", "-", "-", "2", "1", "ready"]]


def test_a_trace_says_which_switch_has_which_slot(
    running: Running, tickets: list[JoinTicket], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("P4REDUCE_CONTROLLER", running.address)
    chosen, _ = trace_view.view("train", 2)
    assert (trace_view._FRAME + trace_view._SLOT, b"\0\2") in chosen
    assert capsys.readouterr().err.startswith("train has slots at b, c, a in turn; --slot and the trace")
