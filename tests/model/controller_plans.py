"""The searches of a controller, and mutants of it that they must catch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from model.controller import Event, Plan
from p4reduce_controller.jobs.entry_writer import EntryWriter
from p4reduce_controller.jobs.model import Grant
from p4reduce_controller.jobs.store import Store
from p4reduce_controller.jobs.takeover import Takeover, compare

_RARE: Final = (
    "killed",
    "controller restarts",
    "stream lost",
    "switch restarts",
    "another primary",
    "silent",
    "leave",
)
_CONNECTED: Final = (Event("reconcile"), Event("create", "a"))
_ONE_RANK: Final = (*_CONNECTED, Event("join", "a", 0), Event("hello", "a", 0), Event("reconcile"))
_TWO_RANKS: Final = (
    *_CONNECTED,
    *(Event(name, "a", rank) for rank in (0, 1) for name in ("join", "hello")),
    Event("reconcile"),
)

_AGAIN: Final = (*_ONE_RANK, Event("leave", "a", 0), Event("join", "a", 0))
_DELETED: Final = (*_ONE_RANK, Event("another primary"), Event("another primary deletes the entries"))
_ONCE: Final = dict.fromkeys(_RARE, 1)

PLANS: Final = {
    "the first events": Plan({"a": 1, "b": 1}, 2, (), 3, _ONCE),
    "an ACTIVE job, and another that waits for its slots": Plan({"a": 1, "b": 1}, 2, _ONE_RANK, 2, _ONCE),
    "a job that forms again": Plan({"a": 1}, 2, _AGAIN, 2, _ONCE),
    "another primary for a while": Plan({"a": 1}, 2, _DELETED, 2, _ONCE),
    "an ACTIVE job of two ranks": Plan({"a": 2}, 2, _TWO_RANKS, 2, _ONCE),
    "two jobs beside each other": Plan({"a": 1, "b": 1}, 4, _ONE_RANK, 2, _ONCE),
}
LARGE: Final = {name: replace(plan, longest=plan.longest + 3) for name, plan in PLANS.items()}


@contextmanager
def epochs_are_forgotten() -> Iterator[None]:
    """Every grant gets epoch 1."""
    with patch.object(Store, "draw_epoch", lambda self, slots, in_use: 1):
        yield


@contextmanager
def stale_entries_stay() -> Iterator[None]:
    """Nothing is deleted from the switch."""

    with patch.object(EntryWriter, "remove", lambda self, grant: None):
        yield


@contextmanager
def leases_before_entries() -> Iterator[None]:
    """A job is ACTIVE once its replies can be addressed, before its ranks are admitted."""

    def install(self: EntryWriter, grant: Grant) -> None:
        self.client.insert(*self._pipeline.entries(grant, self._switch).replies)

    with patch.object(EntryWriter, "install", install):
        yield


@contextmanager
def all_jobs_continue() -> Iterator[None]:
    """After a new connection all jobs continue, whatever entries the switch has."""

    def kept(found: Any, jobs: Any, own: Any) -> Takeover:
        return replace(compare(found, jobs, own), kept=frozenset(jobs))

    with patch("p4reduce_controller.jobs.entry_writer.compare", kept):
        yield


MUTANTS: Final = {
    epochs_are_forgotten: "a job that forms again",
    stale_entries_stay: "an ACTIVE job of two ranks",
    leases_before_entries: "an ACTIVE job of two ranks",
    all_jobs_continue: "another primary for a while",
}
"""With the plan whose search catches each."""
