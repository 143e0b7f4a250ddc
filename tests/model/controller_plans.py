"""The searches of a controller, and mutants of it that they must catch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from model.controller import Event, Plan
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_controller.registry.job import Grant
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.service.store import Store
from p4reduce_controller.switches.entry_writer import EntryWriter, compare

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


_warm_restart, _install = EntryWriter.warm_restart, EntryWriter.install
_installed, _switch_lost = Registry.installed, Registry.switch_lost


def _install_replies(self: EntryWriter, grant: Grant, draws: int) -> None:
    self.client.insert(*self._pipeline.entries(grant, self._switch).replies)


def _installed_early(self: Registry, grant: Grant, now: float) -> None:
    if (job := self.holder(grant)) is not None:
        job.installed.update(job.grants)
    _installed(self, grant, now)


def _lost_at_the_root(self: Registry, reason: str, kept: Collection[int] = (), switch: str = ONLY_SWITCH) -> None:
    if not self.tree.parent(switch):
        _switch_lost(self, reason, kept, switch)


MUTANTS: Final[dict[str, tuple[str, Any]]] = {
    "every grant gets epoch 1": (
        "a job that forms again",
        patch.object(Store, "draw_epoch", lambda self, slots, in_use, switches: 1),
    ),
    "the entries of a switch that has seen more epochs than the controller knows stay": (
        "an older copy of the state, made without an ACTIVE job",
        patch.object(
            EntryWriter, "warm_restart", lambda self, era, grants, _: _warm_restart(self, era, grants, 1 << 63)
        ),
    ),
    "the switch keeps the number of epochs that it got with its pipeline": (
        "an older copy of the state, made of an ACTIVE job",
        patch.object(EntryWriter, "install", lambda self, grant, draws: _install(self, grant, 0)),
    ),
    "nothing is deleted from the switch": (
        "an ACTIVE job of two ranks",
        patch.object(EntryWriter, "remove", lambda self, grant: None),
    ),
    "a job is ACTIVE once its replies can be addressed, before its ranks are admitted": (
        "an ACTIVE job of two ranks",
        patch.object(EntryWriter, "install", _install_replies),
    ),
    "after a new connection all jobs continue, whatever entries the switch has": (
        "another primary for a while",
        patch(
            "p4reduce_controller.switches.entry_writer.compare",
            lambda found, jobs, own: replace(compare(found, jobs, own), kept=frozenset(jobs)),
        ),
    ),
    "a job is ACTIVE once any switch of its tree has its entries": (
        "a tree whose entries are being written",
        patch.object(Registry, "installed", _installed_early),
    ),
    "a switch below the root that has lost its entries resets no job": (
        "an ACTIVE job of a tree",
        patch.object(Registry, "switch_lost", _lost_at_the_root),
    ),
    "a job waits for a switch that the controller cannot use": (
        "an ACTIVE job over switches side by side",
        patch.object(Registry, "can_use", lambda self, switch, usable: self._away.discard(switch)),
    ),
}
"""The mutants, each with the plan whose search catches it, and the change."""
