"""Write and Read, entity by entity: which module deals with which kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_switch.p4runtime import counters, meters, registers, replication, tables, value_sets
from p4reduce_switch.p4runtime.action_profiles import BoundProfile
from p4reduce_switch.p4runtime.digests import Digests
from p4reduce_switch.p4runtime.idle import IdleTimeouts
from p4reduce_switch.p4runtime.pipeline import Pipeline
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.program import ProgramError

_OPERATIONS = (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE)


@dataclass(frozen=True)
class _Kind:
    """How one kind of entity is written (operation, request) and read (query)."""

    write: Callable[[int, Any], None]
    read: Callable[[Any], list[Any]]


class Entities:
    """What controllers read and write of one loaded program. Callers hold the switch's lock."""

    def __init__(self, pipeline: Pipeline, digests: Digests, idle: IdleTimeouts) -> None:
        self.pipeline = pipeline
        self.digests = digests
        self.idle = idle
        self._kinds = {
            "table_entry": _Kind(partial(tables.write, pipeline, idle), partial(tables.read, pipeline, idle)),
            "counter_entry": _Kind(partial(counters.write, pipeline), partial(counters.read, pipeline)),
            "direct_counter_entry": _Kind(
                partial(counters.write_direct, pipeline), partial(counters.read_direct, pipeline)
            ),
            "meter_entry": _Kind(partial(meters.write, pipeline), partial(meters.read, pipeline)),
            "direct_meter_entry": _Kind(partial(meters.write_direct, pipeline), partial(meters.read_direct, pipeline)),
            "packet_replication_engine_entry": _Kind(
                partial(replication.write, pipeline), partial(replication.read, pipeline)
            ),
            "digest_entry": _Kind(digests.write, digests.read),
            "register_entry": _Kind(partial(registers.write, pipeline), partial(registers.read, pipeline)),
            "value_set_entry": _Kind(partial(value_sets.write, pipeline), partial(value_sets.read, pipeline)),
            "action_profile_member": _Kind(partial(_write_member, pipeline), partial(_read_members, pipeline)),
            "action_profile_group": _Kind(partial(_write_group, pipeline), partial(_read_groups, pipeline)),
        }

    def write(self, update: Any) -> Refused | None:
        """Carries out one update; the reason when it does not."""
        try:
            self._write(update)
        except Refused as refused:
            return refused
        except (
            ProgramError,
            ValueError,
            LookupError,
        ) as error:  # a check is missing here
            return Refused(Code.INTERNAL, f"{type(error).__name__}: {error}")
        return None

    def _write(self, update: Any) -> None:
        if update.type not in _OPERATIONS:
            invalid("the update has no valid type")
        kind, request = self._kind_of(update.entity)
        kind.write(update.type, request)

    def read(self, query: Any) -> list[Any]:
        """The entities for one entity of a ReadRequest."""
        kind, request = self._kind_of(query)
        return kind.read(request)

    def _kind_of(self, entity: Any) -> tuple[_Kind, Any]:
        """The kind of an entity, and the message in it."""
        name = entity.WhichOneof("entity")
        if name is None:
            invalid("the entity is empty")
        if name not in self._kinds:
            raise Refused(Code.UNIMPLEMENTED, f"{name} is not supported through P4Runtime by this switch")
        return self._kinds[name], getattr(entity, name)

    def forget_declared(self, last: Entities) -> None:
        """Remove declared entries from tables that `last` has too: its forwarding state has what became of them."""
        for id, bound in self.pipeline.tables.items():
            if id in last.pipeline.tables and not bound.info.const:
                for entry in list(bound.table.entries()):
                    bound.table.delete(entry.match, entry.priority)

    def forwarding_state(self) -> Iterator[Any]:
        """Updates that bring a fresh program to this state: members, groups, entries, and so on."""
        for kind in ("action_profile_member", "action_profile_group"):
            every = p4r.Entity()
            getattr(every, kind).SetInParent()
            for entity in self.read(every):
                yield p4r.Update(type=p4r.Update.INSERT, entity=entity)
        query = p4r.Entity()
        query.table_entry.meter_config.SetInParent()
        for bound in self.pipeline.tables.values():
            query.table_entry.table_id = bound.info.id
            if not bound.info.const:
                entries = [entity for entity in self.read(query) if not entity.table_entry.is_const]
                for entity in entries:
                    entity.table_entry.ClearField("is_const")
                    yield p4r.Update(type=p4r.Update.INSERT, entity=entity)
            if not (bound.table.default_is_const or bound.info.const_default or bound.profile is not None):
                default = p4r.Entity(table_entry={"table_id": bound.info.id, "is_default_action": True})
                for entity in self.read(default):
                    yield p4r.Update(type=p4r.Update.MODIFY, entity=entity)
        value_set = p4r.Entity()
        value_set.value_set_entry.SetInParent()
        for entity in self.read(value_set):
            yield p4r.Update(type=p4r.Update.MODIFY, entity=entity)
        meter = p4r.Entity()
        meter.meter_entry.SetInParent()
        for entity in self.read(meter):
            if entity.meter_entry.HasField("config"):
                yield p4r.Update(type=p4r.Update.MODIFY, entity=entity)
        group, session, digest = p4r.Entity(), p4r.Entity(), p4r.Entity()
        group.packet_replication_engine_entry.multicast_group_entry.SetInParent()
        session.packet_replication_engine_entry.clone_session_entry.SetInParent()
        digest.digest_entry.SetInParent()
        for wildcard in (group, session, digest):
            for entity in self.read(wildcard):
                yield p4r.Update(type=p4r.Update.INSERT, entity=entity)


def _write_member(pipeline: Pipeline, operation: int, request: Any) -> None:
    pipeline.action_profile(request.action_profile_id).write_member(operation, request)


def _write_group(pipeline: Pipeline, operation: int, request: Any) -> None:
    pipeline.action_profile(request.action_profile_id).write_group(operation, request)


def _read_members(pipeline: Pipeline, query: Any) -> list[Any]:
    """The members of one action profile, or of all."""
    return [entity for profile in _profiles(pipeline, query) for entity in profile.read_members(query)]


def _read_groups(pipeline: Pipeline, query: Any) -> list[Any]:
    """The groups of one action selector, or of all."""
    return [entity for profile in _profiles(pipeline, query) for entity in profile.read_groups(query)]


def _profiles(pipeline: Pipeline, query: Any) -> Iterable[BoundProfile]:
    if query.action_profile_id:
        return [pipeline.action_profile(query.action_profile_id)]
    return pipeline.action_profiles.values()
