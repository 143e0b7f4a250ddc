"""The connection to a switch as a state machine without I/O: its states, what each waits for, and one table.

`SwitchReconciler` reports what happened, with the time in seconds, and does what the state asks for.
controller/README.md draws the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
STABLE_MASTERSHIP_S = 300.0
"""Seconds as primary after which the controller bids again at once when it is demoted."""
LONGEST_ELECTION_BACKOFF_S = 60.0
PROBE_INTERVAL_S = 3.0
PROBE_FAILURES = 3
"""Probes that fail in a row before the connection counts as lost."""


class State(Enum):
    """The state of the connection. A controller is primary or backup in the words of the P4Runtime specification."""

    DISCONNECTED = "Disconnected"
    """Waits for the next try to connect."""
    CONNECTING = "Connecting"
    """Waits for the switch's answers. A loss in the meantime takes effect afterwards."""
    BACKUP = "Backup"
    """Connected while another controller is primary: reads only. Waits for its next bid, or the next probe."""
    PRIMARY = "Primary"
    """Waits for entries to write, HELLOs to send, or the next probe."""
    LOST = "Lost"
    """The connection has ended. Waits for the end of the reconciler's step in progress, which used it."""


class Event(Enum):
    """An event of the connection."""

    CONNECT = "connect"
    FAILED = "failed"
    ELECTED = "elected"
    OUTBID = "outbid"
    DEMOTED = "demoted"
    """Another controller has become primary."""
    LOSS = "loss"
    STEP_ENDED = "step ended"
    CLOSE = "close"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.DISCONNECTED, Event.CONNECT): State.CONNECTING,
    (State.CONNECTING, Event.ELECTED): State.PRIMARY,
    (State.CONNECTING, Event.OUTBID): State.BACKUP,
    (State.CONNECTING, Event.FAILED): State.DISCONNECTED,
    (State.CONNECTING, Event.DEMOTED): State.CONNECTING,
    (State.CONNECTING, Event.LOSS): State.CONNECTING,
    (State.PRIMARY, Event.DEMOTED): State.BACKUP,
    (State.PRIMARY, Event.LOSS): State.LOST,
    (State.BACKUP, Event.CONNECT): State.CONNECTING,
    (State.BACKUP, Event.DEMOTED): State.BACKUP,
    (State.BACKUP, Event.LOSS): State.LOST,
    (State.LOST, Event.DEMOTED): State.LOST,
    (State.LOST, Event.LOSS): State.LOST,
    (State.LOST, Event.STEP_ENDED): State.DISCONNECTED,
    **{(state, Event.CLOSE): State.DISCONNECTED for state in State},
}


class TransitionError(Exception):
    """An event that cannot happen in the present state: an error of this program."""


class SwitchConnection:
    """The present state with its deadlines. Times are in seconds of one clock."""

    def __init__(self) -> None:
        self.state = State.DISCONNECTED
        self.number = 0
        """The number of the present try to connect: events of earlier ones must not be reported."""
        self.reason: str | None = None
        """Why this controller is not primary, None if it is or is not connected."""
        self.next_try = 0.0
        """The time at which to connect when DISCONNECTED, or to bid when BACKUP."""
        self.next_probe = 0.0
        self.election_backoff_s = 0.0
        """Seconds from a demotion to this controller's next bid: longer when two controllers demote each other."""
        self._begun_at = 0.0
        self._lost_early = False
        self._probes_failed = 0
        self._demoted_at = -STABLE_MASTERSHIP_S
        self._connect_pause_s = self._bid_pause_s = FIRST_PAUSE_S
        """Seconds from the next failed try to connect, or to bid, to the try after it: twice as many each time."""

    def connect(self, now: float) -> None:
        """Begin a try, the first or a bid; what happened to an earlier connection does not count any more."""
        self._happen(Event.CONNECT)
        self.number += 1
        self.reason, self._begun_at, self._lost_early = None, now, False

    def failed(self, now: float) -> float:
        """The try failed. Return the seconds until the next: none after a try that waited for the switch."""
        self._happen(Event.FAILED)
        self.number += 1
        self.next_try = max(now, self._begun_at + self._connect_pause_s)
        self._connect_pause_s = min(2 * self._connect_pause_s, LONGEST_PAUSE_S)
        return self.next_try - now

    def opened(self, now: float, reason: str | None) -> None:
        """The try succeeded; with a `reason` another controller is primary."""
        self.reason = reason or self.reason  # another may have become primary in the meantime
        self._connect_pause_s = FIRST_PAUSE_S
        self.probe_answered(now)
        if self.reason is None:
            self._happen(Event.ELECTED)
            self._bid_pause_s = FIRST_PAUSE_S
        else:
            self._happen(Event.OUTBID)
            self.next_try = now + self._bid_pause_s
            self._bid_pause_s = min(2 * self._bid_pause_s, LONGEST_PAUSE_S)
        if self._lost_early:
            self._happen(Event.LOSS)

    def demoted(self, now: float) -> bool:
        """Another controller has become primary. Return whether that is news."""
        before = self.state
        self._happen(Event.DEMOTED)
        if before is State.BACKUP:
            return False
        if now - self._demoted_at > STABLE_MASTERSHIP_S:
            self.election_backoff_s = 0.0
        else:
            self.election_backoff_s = min(2 * self.election_backoff_s + FIRST_PAUSE_S, LONGEST_ELECTION_BACKOFF_S)
        self._demoted_at = now
        self.reason = "another controller has become primary"
        self.next_try = now + self.election_backoff_s
        self._bid_pause_s = FIRST_PAUSE_S
        return True

    def lost(self) -> None:
        """The stream ended, a write failed, or the switch is silent."""
        self._lost_early = self.state is State.CONNECTING
        self._happen(Event.LOSS)

    def step_ended(self) -> None:
        """Nothing uses the lost connection any more: a try may begin at once."""
        self._happen(Event.STEP_ENDED)
        self.reason, self.next_try = None, 0.0

    def close(self) -> None:
        """End it; no event may follow."""
        self._happen(Event.CLOSE)
        self.number += 1

    def probe_answered(self, now: float) -> None:
        """The switch answers."""
        self._probes_failed = 0
        self.next_probe = now + PROBE_INTERVAL_S

    def probe_failed(self, now: float) -> None:
        """The switch did not answer in time; too many of these are a loss."""
        self._probes_failed += 1
        self.next_probe = now + FIRST_PAUSE_S
        if self._probes_failed >= PROBE_FAILURES:
            self.lost()

    def _happen(self, event: Event) -> None:
        """Raise TransitionError unless the table has a state for this event."""
        if (self.state, event) not in TRANSITIONS:
            raise TransitionError(f"{event.value} cannot happen to a connection that is {self.state.value}")
        self.state = TRANSITIONS[self.state, event]
