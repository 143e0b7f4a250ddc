"""Write and Read of entities, dispatched by the kind of entity and the P4Info id of the object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_switch.p4runtime.action_profiles import BoundProfile
from p4reduce_switch.p4runtime.digests import Digests
from p4reduce_switch.p4runtime.idle_timeouts import IdleTimeouts
from p4reduce_switch.p4runtime.indirect import BoundCounter, BoundMeter, BoundRegister, BoundValueSet
from p4reduce_switch.p4runtime.pipeline import Objects, Pipeline
from p4reduce_switch.p4runtime.replication import ReplicationEngine
from p4reduce_switch.p4runtime.status import Code, RequestError, invalid_argument, request_error
from p4reduce_switch.p4runtime.tables import BoundTable
from p4reduce_switch.program import ProgramError

_OPERATIONS = (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE)

BoundT = TypeVar("BoundT")


class _Kind(Protocol):
    """How one kind of entity is written and read."""

    def write(self, operation: p4r.Update.Type, request: Any, /) -> None: ...

    def read(self, query: Any, /) -> Iterable[p4r.Entity]: ...


class _ById(Generic[BoundT]):
    """A kind of entity that names an object of the program by its id; in a query 0 stands for all objects."""

    def __init__(
        self,
        objects: Objects[BoundT],
        id_field: str,
        write: Callable[[BoundT, p4r.Update.Type, Any], None],
        read: Callable[[BoundT, Any], Iterable[p4r.Entity]],
    ) -> None:
        self._objects, self._id_of, self._write, self._read = objects, attrgetter(id_field), write, read

    def write(self, operation: p4r.Update.Type, request: Any) -> None:
        self._write(self._objects[self._id_of(request)], operation, request)

    def read(self, query: Any) -> Iterator[p4r.Entity]:
        id = self._id_of(query)
        for bound in [self._objects[id]] if id else self._objects.values():
            yield from self._read(bound, query)


class Entities:
    """The entities of one loaded program that controllers write and read. Callers hold the switch's lock."""

    def __init__(self, pipeline: Pipeline, digests: Digests, idle_timeouts: IdleTimeouts) -> None:
        self.pipeline = pipeline
        self.digests = digests
        self.idle_timeouts = idle_timeouts
        tables, profiles = pipeline.tables, pipeline.action_profiles
        self._kinds: Mapping[str, _Kind] = {
            "table_entry": _ById(tables, "table_id", BoundTable.write, BoundTable.read),
            "direct_counter_entry": _ById(
                tables, "table_entry.table_id", BoundTable.write_counter, BoundTable.read_counters
            ),
            "direct_meter_entry": _ById(tables, "table_entry.table_id", BoundTable.write_meter, BoundTable.read_meters),
            "action_profile_member": _ById(
                profiles, "action_profile_id", BoundProfile.write_member, BoundProfile.read_members
            ),
            "action_profile_group": _ById(
                profiles, "action_profile_id", BoundProfile.write_group, BoundProfile.read_groups
            ),
            "counter_entry": _ById(pipeline.counters, "counter_id", BoundCounter.write, BoundCounter.read),
            "meter_entry": _ById(pipeline.meters, "meter_id", BoundMeter.write, BoundMeter.read),
            "register_entry": _ById(pipeline.registers, "register_id", BoundRegister.write, BoundRegister.read),
            "value_set_entry": _ById(pipeline.value_sets, "value_set_id", BoundValueSet.write, BoundValueSet.read),
            "packet_replication_engine_entry": ReplicationEngine(pipeline.program.replication),
            "digest_entry": digests,
        }

    def write(self, update: p4r.Update) -> RequestError | None:
        """Apply one update; return the error when it was not applied."""
        try:
            if update.type not in _OPERATIONS:
                invalid_argument("the update has no valid type")
            kind, request = self._kind_of(update.entity)
            kind.write(update.type, request)
        except RequestError as error:
            return error
        except (ProgramError, ValueError, LookupError) as error:
            return request_error(error)
        return None

    def read(self, query: p4r.Entity) -> list[p4r.Entity]:
        """Return the entities for one entity of a ReadRequest."""
        kind, request = self._kind_of(query)
        try:
            return list(kind.read(request))
        except ProgramError as error:
            raise request_error(error) from error

    def _kind_of(self, entity: p4r.Entity) -> tuple[_Kind, Any]:
        """Return the handler for an entity, and the message in it."""
        name = entity.WhichOneof("entity")
        if name is None:
            invalid_argument("the entity is empty")
        if name not in self._kinds:
            raise RequestError(Code.UNIMPLEMENTED, f"{name} is not supported through P4Runtime by this switch")
        return self._kinds[name], getattr(entity, name)

    def remove_initial_entries(self, last: Entities) -> None:
        """Remove the program's initial entries from tables that `last` has too: its forwarding state replaces them."""
        for id, bound in self.pipeline.tables.items():
            if id in last.pipeline.tables and not bound.info.const:
                for entry in list(bound.table.entries()):
                    bound.table.delete(entry.match, entry.priority)

    def forwarding_state(self) -> Iterator[p4r.Update]:
        """Yield the updates that bring a fresh program to this state, in an order that satisfies references."""
        for entity in self._all("action_profile_member", "action_profile_group"):
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
        for entity in self._all("value_set_entry", "meter_entry"):
            if entity.HasField("value_set_entry") or entity.meter_entry.HasField("config"):
                yield p4r.Update(type=p4r.Update.MODIFY, entity=entity)
        engine = "packet_replication_engine_entry"
        for entity in self._all(f"{engine}.multicast_group_entry", f"{engine}.clone_session_entry", "digest_entry"):
            yield p4r.Update(type=p4r.Update.INSERT, entity=entity)

    def _all(self, *kinds: str) -> Iterator[p4r.Entity]:
        """Yield all entities of these kinds, each given by the path of its message in an Entity."""
        for kind in kinds:
            query = p4r.Entity()
            attrgetter(kind)(query).SetInParent()
            yield from self.read(query)
