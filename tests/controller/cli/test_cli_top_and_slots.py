"""`p4reduce top`: rates from two samples; `job show --slots`: what each rank waits for, as its heartbeats say."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from p4reduce_contracts.jobs.answers import Count, DropStats, JobInfo, JobList, JobStats, MemberInfo, Stats, WaitingSlot
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_controller.cli.top import Look, screen
from rigs.fake_switch_client import Running, create_and_form, form, rows, shown


def cells(text: str, beginning: str) -> list[str]:
    (row,) = rows(text, beginning)
    return row


def a_look(at_s: float, times: int, *, job_id: int = 1, silent_s: float = 0.0) -> Look:
    members = (MemberInfo(0, silent_s),)
    info = JobInfo("train", job_id, 2, 0, 4, "ACTIVE", 3, members, "rank 1 left")
    counts = [Count(times * number, 1_000_000 * times * number) for number in (1, 2, 3, 4)]
    drops = (DropStats("stale", Count(10 * times)), DropStats("bad", Count()))
    return Look(at_s, JobList((info,), 16, 12), Stats((JobStats("train", job_id, *counts),), drops))


def text_of(before: Look, now: Look) -> str:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(screen(before, now))
    return captured.get()


def test_rates_are_the_differences_between_two_samples() -> None:
    text = text_of(a_look(10.0, 100), a_look(12.0, 120, silent_s=7.4))
    assert cells(text, "train") == [
        "train", "ACTIVE", "1 of 2", "30.0", "10.0", "30.0", "20.0", "40.0", "rank 0 7 s; rank 1 left",
    ]  # fmt: skip
    assert cells(text, "stale") == ["stale", "100.0", "1200"]
    assert "bad" not in text
    assert "12 of 16 slots free" in text


def test_a_new_job_of_the_same_name_has_no_rates_yet() -> None:
    text = text_of(a_look(10.0, 100), a_look(12.0, 1, job_id=2))
    assert cells(text, "train")[3:] == [*"-----", "new: rates follow; rank 1 left"]


def test_the_drops_of_a_switch_that_was_away_have_no_rate_yet() -> None:
    before, now = a_look(10.0, 100), a_look(12.0, 120)
    assert now.stats is not None
    drops = (*now.stats.drops, DropStats("epoch", Count(900), "leaf2"))
    text = text_of(before, replace(now, stats=replace(now.stats, drops=drops)))
    assert cells(text, "stale") == ["stale", "", "100.0", "1200"]
    assert cells(text, "epoch") == ["epoch", "leaf2", "-", "900"]


def test_a_switch_without_connection_is_shown(running: Running) -> None:
    with JobClient(running.address) as client:
        client.create_job("train", 1)
    running.client.reachable = False
    text = shown(running, "top", "--once", "--every", "0.1")
    assert cells(text, "train")[3:] == [*"-----", "its counters could not be read"]
    assert "did not answer" in text


STUCK = WaitingSlot(slot=5, round=1234, missing=0b10, waited_s=7.5, in_flight=3)


def row(text: str, rank: int) -> list[str]:
    """The cells of a rank's row in the second table."""
    (found,) = rows(text.partition("Waiting, at the last heartbeat")[2], str(rank))
    return found


def test_missing_ranks_are_shown_with_their_waiting_time(running: Running) -> None:
    with JobClient(running.address) as client:
        tickets, _ = create_and_form(running, client, "train", 3)
        client.heartbeat(tickets[0].nonce, STUCK)
        client.heartbeat(tickets[1].nonce)
        client.heartbeat(tickets[2].nonce, WaitingSlot(0, 9, 0, 0.25, 1))
        text = shown(running, "job", "show", "train", "--slots")
        assert row(text, 0) == ["0", "3", "5", "1234", "7.5", "1"]
        assert row(text, 1)[-1] == "in no collective"
        assert row(text, 2)[-1] == "not known: no PENDING yet"
        assert "Waiting" not in shown(running, "job", "show", "train")
        assert client.get_job("train").members[0].slot_wait == STUCK
        members = json.loads(shown(running, "job", "show", "train", "--json"))["members"]
        assert members[0]["slot_wait"]["round"] == 1234
        client.heartbeat(tickets[0].nonce)
        assert client.get_job("train").members[0].slot_wait is None, "it went on"


def test_a_waiting_time_that_is_negative_or_not_finite_is_ignored(running: Running) -> None:
    with JobClient(running.address) as client:
        tickets, _ = create_and_form(running, client, "train", 1)
        for waited_s in (float("nan"), float("inf"), -1.0):
            client.heartbeat(tickets[0].nonce, WaitingSlot(0, 9, 0, waited_s, 1))
            assert client.get_job("train").members[0].slot_wait is None


def test_a_private_job_shows_its_rounds_to_its_token_alone(running: Running) -> None:
    with JobClient(running.address) as client:
        made = client.create_job("mine", 1, private=True)
    with JobClient(running.address, token=made.member_token) as member:
        tickets, _ = form(running, member, "mine", 1)
        member.heartbeat(tickets[0].nonce, STUCK)
    hidden = shown(running, "job", "show", "mine", "--slots")
    assert "hidden without a token" in hidden
    assert "1234" not in hidden + shown(running, "job", "show", "mine", "--json")
    assert row(shown(running, "job", "show", "mine", "--slots", "--token", made.owner_token), 0)[3] == "1234"
