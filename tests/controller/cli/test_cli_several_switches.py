"""What the commands show of a controller with several switches: of a tree, and of switches side by side."""

from __future__ import annotations

import json

import pytest

from p4reduce_contracts.jobs.answers import JoinTicket, WaitingSlot
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_controller.cli import trace_view
from p4reduce_controller.config import Config
from p4reduce_controller.switches.program_names import V1MODEL
from rigs.fake_switch_client import (
    RACKS,
    SIDE_BY_SIDE,
    UPLINK,
    Running,
    form_at,
    rows,
    shown,
    with_switches_side_by_side,
    with_tree,
)

TREE, BESIDE = (pytest.mark.parametrize("network", [name]) for name in ("tree", "side by side"))


@pytest.fixture(params=["tree", "side by side"])
def network(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def config(config: Config, network: str) -> Config:
    return with_tree(config, RACKS) if network == "tree" else with_switches_side_by_side(config)


@pytest.fixture
def tickets(running: Running, network: str) -> list[JoinTicket]:
    """The join tickets of the job "train".

    Of a tree: ranks 0 and 1 at leaf1, 2 and 3 at leaf2, 4 at the root. Side by side: two ranks, at b, c and a.
    """
    with JobClient(running.address) as client:
        if network == "tree":
            client.create_job("train", 5, 4)
            return form_at(running, client, "train", ["leaf1", "leaf1", "leaf2", "leaf2", "root"])[0]
        shown(running, "job", "create", "train", "--world-size", "2", "--slots", "4", "--switches", "3")
        return form_at(running, client, "train", [SIDE_BY_SIDE] * 2)[0]


@TREE
def test_job_show_shows_the_tree_and_what_waits(running: Running, tickets: list[JoinTicket]) -> None:
    with JobClient(running.address) as client:
        client.heartbeat(tickets[0].nonce, WaitingSlot(0, 9, 0b110, 3.0, 1, level=1))
        client.heartbeat(tickets[2].nonce, WaitingSlot(0, 9, 0b10, 3.0, 1))
    text = shown(running, "job", "show", "train", "--slots")
    assert rows(text, "root") == [
        ["root", "-", "leaf1 (ranks 0, 1), leaf2 (ranks 2, 3), rank 4", "leaf2 (ranks 2, 3), rank 4"]
    ]
    assert rows(text, "leaf1") == [["leaf1", "root", "ranks 0, 1", "-"]]
    assert rows(text, "leaf2") == [["leaf2", "root", "ranks 2, 3", "rank 3"]]
    members, waits = text.split("Waiting, at the last heartbeat")
    assert rows(members, "2")[0][3:5] == ["leaf2", "3"]
    assert rows(waits, "0")[0][-1] == "root waits for leaf2 (ranks 2, 3), rank 4"
    assert rows(waits, "2")[0][-1] == "leaf2 waits for rank 3"
    (root, *leaves) = json.loads(shown(running, "job", "show", "train", "--json"))["tree"]
    assert root == {"switch": "root", "children": [[0, 1], [2, 3], [4]], "parent": None}
    assert [leaf["parent"] for leaf in leaves] == ["root", "root"]


@TREE
def test_a_waiting_slot_that_fits_no_switch_of_the_job_is_no_error(running: Running, tickets: list[JoinTicket]) -> None:
    with JobClient(running.address) as client:
        client.heartbeat(tickets[0].nonce, WaitingSlot(0, 9, 1 << 31, 3.0, 1, level=0))
        client.heartbeat(tickets[1].nonce, WaitingSlot(0, 9, 1, 3.0, 1, level=(1 << 32) - 1))
    text = shown(running, "job", "show", "train", "--slots")
    assert rows(text, "leaf1") == [["leaf1", "root", "ranks 0, 1", "-"]]


@BESIDE
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
    assert rows(shown(running, "job", "list"), "train")[0][6:8] == ["0..3", "3"]
    text = shown(running, "controller", "switches")
    assert rows(text, "b") == [["b", "127.0.0.1:10001", "127.0.0.1:4002", "-", "-", "-", "2", "1", "ready"]]


def test_stats_and_top_are_by_switch(running: Running, tickets: list[JoinTicket]) -> None:
    job, ranks, names = tickets[0].job_id, len(tickets), list(running.clients)
    for number, client in enumerate(running.clients.values(), 1):
        for place, counter in enumerate(V1MODEL.job_counters.values(), 1):
            client.counters[counter, job] = (10 * number + place, 1000)
        client.counters[V1MODEL.drops, 6] = (number, 100)
    text = shown(running, "stats")
    assert rows(text, "train") == [
        ["train", str(job), name, f"{n}1", "1000", f"{n}2", f"{n}3", f"{n}4", f"{n}5", "-"]
        for n, name in enumerate(names, 1)
    ]
    assert rows(text, "EPOCH") == [["EPOCH", name, str(n), "100"] for n, name in enumerate(names, 1)]
    text = shown(running, "top", "--once", "--every", "0.1")
    assert [cells[:5] for cells in rows(text, "train")] == [
        ["train", name, "ACTIVE", f"{ranks} of {ranks}", "0.0"] for name in names
    ]
    assert rows(text, "EPOCH") == [["EPOCH", name, "0.0", str(n)] for n, name in enumerate(names, 1)]


@TREE
def test_stats_and_top_name_a_switch_that_is_away_and_show_the_others(
    running: Running, tickets: list[JoinTicket]
) -> None:
    job = tickets[0].job_id
    for number, client in enumerate(running.clients.values(), 1):
        client.counters[V1MODEL.job_counters["results"], job] = (number, 100)
        client.counters[V1MODEL.drops, 6] = (number, 100)
    running.clients["leaf2"].reachable = False
    text = shown(running, "stats")
    assert [(cells[2], cells[6]) for cells in rows(text, "train")] == [("root", "1"), ("leaf1", "2")]
    assert [cells[1] for cells in rows(text, "EPOCH")] == ["root", "leaf1"]
    assert "127.0.0.1:10002 did not answer" in rows(text, "leaf2")[0][1]
    (away,) = json.loads(shown(running, "stats", "--json"))["away"]
    assert away["switch"] == "leaf2" and away["problem"]  # which another try to connect may change
    text = shown(running, "top", "--once", "--every", "0.1")
    assert [cells[:2] for cells in rows(text, "train")] == [["train", "root"], ["train", "leaf1"]]
    assert "switch leaf2 is away: " in text
    running.clients["leaf1"].reachable = False
    text = shown(running, "stats")
    assert [(cells[2], cells[6]) for cells in rows(text, "train")] == [("root", "1")], "one of three has its name too"


def test_a_job_without_entries_has_no_switch(running: Running) -> None:
    with JobClient(running.address) as client:
        client.create_job("new", 2, 4)
    assert rows(shown(running, "stats"), "new")[0][2:] == ["-", "0", "0", "0", "0", "0", "0", "-"]
    assert rows(shown(running, "top", "--once", "--every", "0.1"), "new")[0][:4] == ["new", "-", "FORMING", "0 of 2"]


@TREE
def test_switch_list(running: Running, tickets: list[JoinTicket]) -> None:
    text = shown(running, "controller", "switches")
    here = "127.0.0.1:21072"
    assert rows(text, "root") == [["root", "127.0.0.1:10000", here, "-", "-", "-", "1", "1", "ready"]]
    assert rows(text, "leaf2") == [["leaf2", "127.0.0.1:10002", here, "root", str(UPLINK), "102", "2", "1", "ready"]]
    leaf = running.clients["leaf1"]
    leaf.reachable = False
    running.call(leaf.lose)
    running.wait(lambda: bool(running.controller.switches.unavailable_reason()))
    text = shown(running, "controller", "switches")
    assert "the controller has no connection to switch leaf1 at 127.0.0.1:10001" in rows(text, "leaf1")[0][-1]
    listed = json.loads(shown(running, "controller", "switches", "--json"))
    assert [each["name"] for each in listed] == list(RACKS)


@BESIDE
def test_a_trace_says_which_switch_has_which_slot(
    running: Running, tickets: list[JoinTicket], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("P4REDUCE_CONTROLLER", running.address)
    chosen, _ = trace_view.view("train", 2)
    assert (trace_view._FRAME + 6, b"\0\2") in chosen
    assert capsys.readouterr().err.startswith("train has slots at b, c, a in turn; --slot and the trace")
