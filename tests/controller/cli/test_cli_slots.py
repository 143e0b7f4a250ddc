"""`p4reduce job show --slots`: what each rank waits for, as its heartbeats say."""

from __future__ import annotations

import json

from click.testing import CliRunner

from p4reduce_contracts.cli import main
from p4reduce_contracts.jobs.answers import WaitingSlot
from p4reduce_contracts.jobs.client import JobClient
from rigs.fake_switch_client import Running, form
from rigs.tables import rows

STUCK = WaitingSlot(slot=5, round=1234, missing=0b10, waited_s=7.5, in_flight=3)


def show(running: Running, name: str, *options: str) -> str:
    result = CliRunner().invoke(main, ["job", "show", name, "--controller", running.address, *options])
    assert result.exit_code == 0, result.output
    return result.output


def row(text: str, rank: int) -> list[str]:
    """The cells of a rank's row in the second table."""
    (found,) = rows(text.partition("Waiting, at the last heartbeat")[2], str(rank))
    return found


def test_missing_ranks_are_shown_with_their_waiting_time(running: Running) -> None:
    with JobClient(running.address) as client:
        client.create_job("train", 3)
        tickets, _ = form(running, client, "train", 3)
        client.heartbeat(tickets[0].nonce, STUCK)
        client.heartbeat(tickets[1].nonce)
        client.heartbeat(tickets[2].nonce, WaitingSlot(0, 9, 0, 0.25, 1))
        text = show(running, "train", "--slots")
        assert row(text, 0) == ["0", "3", "5", "1234", "7.5", "1"]
        assert row(text, 1)[-1] == "in no collective"
        assert row(text, 2)[-1] == "not known: no PENDING yet"
        assert "Waiting" not in show(running, "train")
        assert client.get_job("train").members[0].slot_wait == STUCK
        members = json.loads(show(running, "train", "--json"))["members"]
        assert members[0]["slot_wait"]["round"] == 1234
        client.heartbeat(tickets[0].nonce)
        assert client.get_job("train").members[0].slot_wait is None, "it went on"


def test_a_waiting_time_that_is_negative_or_not_finite_is_ignored(running: Running) -> None:
    with JobClient(running.address) as client:
        client.create_job("train", 1)
        tickets, _ = form(running, client, "train", 1)
        for waited_s in (float("nan"), float("inf"), -1.0):
            client.heartbeat(tickets[0].nonce, WaitingSlot(0, 9, 0, waited_s, 1))
            assert client.get_job("train").members[0].slot_wait is None


def test_a_private_job_shows_its_rounds_to_its_token_alone(running: Running) -> None:
    with JobClient(running.address) as client:
        made = client.create_job("mine", 1, private=True)
    with JobClient(running.address, token=made.member_token) as member:
        tickets, _ = form(running, member, "mine", 1)
        member.heartbeat(tickets[0].nonce, STUCK)
    hidden = show(running, "mine", "--slots")
    assert "hidden without a token" in hidden
    assert "1234" not in hidden + show(running, "mine", "--json")
    assert row(show(running, "mine", "--slots", "--token", made.owner_token), 0)[3] == "1234"
