"""A job's entries in a switch program of this process."""

from __future__ import annotations

from collections.abc import Iterable

from p4reduce_controller.config import SwitchConfig
from p4reduce_controller.registry.job import Grant
from p4reduce_controller.switches.entries import v1model
from p4reduce_controller.switches.program_names import V1MODEL
from p4reduce_runtime.p4runtime.entries import TableEntry
from p4reduce_switch.program import Program, Replica
from p4reduce_switch.program.ir.program import KeyTest


def admit(loaded: Program, grant: Grant, switch: SwitchConfig) -> None:
    """Write what a grant needs to a program in this process, as a controller would to a switch."""
    entries = [*v1model.switch_address(switch, V1MODEL), *v1model.members(grant, switch, V1MODEL)]
    _insert(loaded, [*entries, *v1model.admission(grant, V1MODEL)])
    for group in v1model.groups(grant):
        replicas = [Replica(port, instance) for port, instance in group.replicas]
        loaded.replication.multicast_groups[group.group_id] = replicas


def _insert(loaded: Program, entries: Iterable[TableEntry]) -> None:
    for entry in entries:
        table = loaded.tables[entry.table]
        match = tuple(KeyTest.of(key.kind, key.bits, entry.match[key.name]) for key in table.keys)
        action = entry.action or ""
        params = tuple(entry.params[name] for name, _ in table.action_params[action])
        table.insert(match, 0, (action, params))
