"""The searches of a controller, and mutants of it that they must catch."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from model.controller import Event, Plan
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_controller.registry.job import Grant
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.service.store import Store
from p4reduce_controller.switches.entry_writer import Difference, EntryWriter, compare

_RARE: Final = ("killed", "controller restarts", "stream lost", "restarts", "another primary", "silent", "leave")
_RECONCILE: Final = Event("reconcile", switch=ONLY_SWITCH)
_CONNECTED: Final = (_RECONCILE, Event("create", "a"))
_ONE_RANK: Final = (*_CONNECTED, Event("join", "a", 0), Event("hello", "a", 0), _RECONCILE)
_TWO_RANKS: Final = (
    *_CONNECTED,
    *(Event(name, "a", rank) for rank in (0, 1) for name in ("join", "hello")),
    _RECONCILE,
)

_AGAIN: Final = (*_ONE_RANK, Event("leave", "a", 0), Event("join", "a", 0))
_DELETED: Final = (
    *_ONE_RANK,
    Event("another primary", switch=ONLY_SWITCH),
    Event("another primary deletes the entries", switch=ONLY_SWITCH),
)
_ONCE: Final = dict.fromkeys(_RARE, 1)
_COPIED: Final = Event("state copied")
_OLDER: Final = dict.fromkeys(_RARE, 0) | {"leave": 2, "create": 1, "remove": 0, "copy put back": 1}

_TREE: Final = {"root": "", "leaf": "root"}
_RANKS_AT: Final = ("leaf", "root")
_TREE_FOUND: Final = (
    *(Event("reconcile", switch=switch) for switch in _TREE),
    Event("says HELLO", switch="leaf"),
    Event("reconcile", switch="leaf"),
    Event("reconcile", switch="root"),
    Event("says HELLO", switch="root"),
    Event("create", "a"),
    *(Event(name, "a", rank) for rank in (0, 1) for name in ("join", "hello")),
)
_TREE_ACTIVE: Final = (*_TREE_FOUND, *(Event("reconcile", switch=switch) for switch in _TREE))

_BESIDE: Final = {"x": "", "y": ""}
_BESIDE_FOUND: Final = (
    *(Event("reconcile", switch=switch) for switch in _BESIDE),
    *(Event("create", "a"), Event("join", "a", 0)),
    *(Event("hello", "a", 0, switch=switch) for switch in _BESIDE),
)
_BESIDE_ACTIVE: Final = (*_BESIDE_FOUND, *(Event("reconcile", switch=switch) for switch in _BESIDE))

PLANS: Final = {
    "the first events": Plan({"a": 1, "b": 1}, 2, (), 3, _ONCE),
    "an ACTIVE job, and another that waits for its slots": Plan({"a": 1, "b": 1}, 2, _ONE_RANK, 2, _ONCE),
    "a job that forms again": Plan({"a": 1}, 2, _AGAIN, 2, _ONCE),
    "another primary for a while": Plan({"a": 1}, 2, _DELETED, 2, _ONCE),
    "an ACTIVE job of two ranks": Plan({"a": 2}, 2, _TWO_RANKS, 2, _ONCE),
    "two jobs beside each other": Plan({"a": 1, "b": 1}, 4, _ONE_RANK, 2, _ONCE),
    "an older copy of the state, made without an ACTIVE job": Plan(
        {"a": 1}, 2, (*_CONNECTED, _COPIED, *_ONE_RANK[2:]), 6, _OLDER
    ),
    "an older copy of the state, made of an ACTIVE job": Plan(
        {"a": 1}, 2, (*_ONE_RANK, _COPIED, *_AGAIN[-2:], Event("hello", "a", 0), _RECONCILE), 6, _OLDER
    ),
    "a tree whose entries are being written": Plan({"a": 2}, 2, _TREE_FOUND, 2, _ONCE, _TREE, _RANKS_AT),
    "an ACTIVE job of a tree": Plan({"a": 2}, 2, _TREE_ACTIVE, 2, _ONCE, _TREE, _RANKS_AT),
    "switches side by side whose entries are being written": Plan({"a": 1}, 2, _BESIDE_FOUND, 2, _ONCE, _BESIDE),
    "an ACTIVE job over switches side by side": Plan({"a": 1}, 2, _BESIDE_ACTIVE, 2, _ONCE, _BESIDE),
}
LARGE: Final = {
    name: replace(plan, longest=plan.longest + (2 if len(plan.tree) > 1 else 3), most=plan.most | {"killed": 1})
    for name, plan in PLANS.items()
}
"""A third event more in a tree is seven times as many sequences, each with the events of two switches."""


@contextmanager
def epochs_are_forgotten() -> Iterator[None]:
    """Every grant gets epoch 1."""
    with patch.object(Store, "draw_epoch", lambda self, slots, in_use, switches: 1):
        yield


@contextmanager
def draws_are_not_compared() -> Iterator[None]:
    """The controller keeps the entries of a switch that has seen more epochs than it knows."""
    warm_restart = EntryWriter.warm_restart
    with patch.object(
        EntryWriter, "warm_restart", lambda self, era, grants, draws: warm_restart(self, era, grants, 1 << 63)
    ):
        yield


@contextmanager
def draws_are_not_written() -> Iterator[None]:
    """The switch keeps the number of epochs that it got with its pipeline."""
    install = EntryWriter.install
    with patch.object(EntryWriter, "install", lambda self, grant, draws: install(self, grant, 0)):
        yield


@contextmanager
def stale_entries_stay() -> Iterator[None]:
    """Nothing is deleted from the switch."""

    with patch.object(EntryWriter, "remove", lambda self, grant: None):
        yield


@contextmanager
def leases_before_entries() -> Iterator[None]:
    """A job is ACTIVE once its replies can be addressed, before its ranks are admitted."""

    def install(self: EntryWriter, grant: Grant, draws: int) -> None:
        self.client.insert(*self._pipeline.entries(grant, self._switch).replies)

    with patch.object(EntryWriter, "install", install):
        yield


@contextmanager
def all_jobs_continue() -> Iterator[None]:
    """After a new connection all jobs continue, whatever entries the switch has."""

    def kept(found: Any, jobs: Any, own: Any) -> Difference:
        return replace(compare(found, jobs, own), kept=frozenset(jobs))

    with patch("p4reduce_controller.switches.entry_writer.compare", kept):
        yield


@contextmanager
def one_switch_is_enough() -> Iterator[None]:
    """A job is ACTIVE once any switch of its tree has its entries."""
    installed = Registry.installed

    def early(self: Registry, grant: Grant, now: float) -> None:
        if (job := self.holder(grant)) is not None:
            job.installed.update(job.grants)
        installed(self, grant, now)

    with patch.object(Registry, "installed", early):
        yield


@contextmanager
def the_root_alone_counts() -> Iterator[None]:
    """A switch below the root that has lost its entries resets no job."""
    switch_lost = Registry.switch_lost

    def lost(self: Registry, reason: str, kept: Collection[int] = (), switch: str = ONLY_SWITCH) -> None:
        if not self.tree.parent(switch):
            switch_lost(self, reason, kept, switch)

    with patch.object(Registry, "switch_lost", lost):
        yield


@contextmanager
def a_lost_switch_stays() -> Iterator[None]:
    """A job waits for a switch that the controller cannot use."""
    with patch.object(Registry, "can_use", lambda self, switch, usable: self._away.discard(switch)):
        yield


MUTANTS: Final = {
    epochs_are_forgotten: "a job that forms again",
    draws_are_not_compared: "an older copy of the state, made without an ACTIVE job",
    draws_are_not_written: "an older copy of the state, made of an ACTIVE job",
    stale_entries_stay: "an ACTIVE job of two ranks",
    leases_before_entries: "an ACTIVE job of two ranks",
    all_jobs_continue: "another primary for a while",
    one_switch_is_enough: "a tree whose entries are being written",
    the_root_alone_counts: "an ACTIVE job of a tree",
    a_lost_switch_stays: "an ACTIVE job over switches side by side",
}
"""The mutants, each with the plan whose search catches it."""
