"""The connection to a switch as a state machine: its table is drawn, and its deadlines follow from what happened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from p4reduce_controller.switches.connection import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    PROBE_FAILURES,
    PROBE_INTERVAL_S,
    STABLE_MASTERSHIP_S,
    TRANSITIONS,
    Event,
    State,
    SwitchConnection,
    TransitionError,
)

README = Path(__file__).parents[3] / "controller" / "README.md"


def opened(now: float = 0.0, reason: str | None = None) -> SwitchConnection:
    connection = SwitchConnection()
    connection.connect(now)
    connection.opened(now, reason)
    return connection


def test_the_readme_draws_the_table() -> None:
    arrows = re.findall(r"^ +(\w+) --> (\w+): (.+)$", README.read_text(), re.MULTILINE)
    drawn = {(State(begin), Event(event)): State(end) for begin, end, events in arrows for event in events.split(", ")}
    assert drawn == {key: end for key, end in TRANSITIONS.items() if key[1] is not Event.CLOSE}


def test_an_event_that_the_table_lacks_is_an_error() -> None:
    with pytest.raises(TransitionError, match=f"{Event.STEP_ENDED.value} .* {State.PRIMARY.value}"):
        opened().step_ended()


def test_pauses_between_tries_double_but_a_try_that_waited_is_followed_at_once() -> None:
    connection, pauses = SwitchConnection(), []
    for _ in range(8):
        connection.connect(10.0)
        pauses.append(round(connection.failed(10.0), 3))
    assert pauses == [FIRST_PAUSE_S, 0.2, 0.4, 0.8, 1.6, 3.2, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    connection.connect(20.0)
    assert connection.failed(20.0 + LONGEST_PAUSE_S) == 0
    connection.connect(30.0)
    connection.opened(30.0, None)
    connection.lost()
    connection.step_ended()
    assert connection.next_try <= 30.0
    connection.connect(30.0)
    assert connection.failed(30.0) == pytest.approx(FIRST_PAUSE_S)


def test_a_backup_bids_again_and_again() -> None:
    connection = SwitchConnection()
    for now, pause in ((0.0, 0.1), (1.0, 0.2), (2.0, 0.4)):
        connection.connect(now)
        connection.opened(now, "another controller")
        assert (connection.state, connection.reason) == (State.BACKUP, "another controller")
        assert connection.next_try == pytest.approx(now + pause)
    connection.connect(3.0)
    connection.opened(3.0, None)
    assert (connection.state, connection.reason) == (State.PRIMARY, None)


def test_controllers_that_take_over_from_each_other_back_off() -> None:
    connection, now, backoffs = opened(1000.0), 1000.0, []
    for _ in range(12):
        assert connection.demoted(now)
        assert not connection.demoted(now), "it is known"
        backoffs.append(round(connection.election_backoff_s, 1))
        assert connection.next_try == now + connection.election_backoff_s
        connection.connect(now)
        connection.opened(now, None)
    assert backoffs == [0.0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 25.5, 51.1, 60.0, 60.0]
    now += STABLE_MASTERSHIP_S + 1
    connection.demoted(now)
    assert connection.election_backoff_s == 0


def test_what_happens_while_connecting_takes_effect_afterwards() -> None:
    connection = SwitchConnection()
    connection.connect(0.0)
    connection.demoted(0.0)
    assert connection.state is State.CONNECTING
    connection.opened(0.0, None)
    assert connection.state is State.BACKUP
    connection.connect(1.0)
    connection.lost()
    connection.opened(1.0, None)
    assert connection.state is State.LOST
    connection.step_ended()
    connection.connect(2.0)
    connection.opened(2.0, None)
    assert connection.state is State.PRIMARY


def test_a_number_of_failed_probes_in_a_row_is_a_loss() -> None:
    connection = opened()
    assert connection.next_probe == PROBE_INTERVAL_S
    for end in (State.PRIMARY, State.LOST):
        for _ in range(PROBE_FAILURES - 1):
            connection.probe_failed(5.0)
            assert connection.next_probe == 5.0 + FIRST_PAUSE_S
        assert connection.state is State.PRIMARY
        if end is State.PRIMARY:
            connection.probe_answered(5.0)
        else:
            connection.probe_failed(5.0)
    assert connection.state is State.LOST


def test_each_try_has_its_own_number() -> None:
    connection = SwitchConnection()
    numbers = {connection.number}
    for _ in range(3):
        connection.connect(0.0)
        numbers.add(connection.number)
        connection.failed(0.0)
        numbers.add(connection.number)
    connection.close()
    assert len(numbers | {connection.number}) == 8
