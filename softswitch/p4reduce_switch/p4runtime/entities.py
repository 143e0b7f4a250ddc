"""Write and Read, entity by entity: which module deals with which kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4reduce_contracts.p4runtime import messages
from p4reduce_switch.p4runtime import counters, replication, tables
from p4reduce_switch.p4runtime.digests import Digests
from p4reduce_switch.p4runtime.pipeline import Pipeline
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.program import ProgramError

_OPERATIONS = (messages.Update.INSERT, messages.Update.MODIFY, messages.Update.DELETE)


class Entities:
    """What controllers read and write of one loaded program. Callers hold the switch's lock."""

    def __init__(self, pipeline: Pipeline, digests: Digests) -> None:
        self.pipeline = pipeline
        self.digests = digests

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
        kind = update.entity.WhichOneof("entity")
        if kind is None:
            invalid("the update has no entity")
        request = getattr(update.entity, kind)
        if kind == "table_entry":
            tables.write(self.pipeline, update.type, request)
        elif kind == "counter_entry":
            counters.write(self.pipeline, update.type, request)
        elif kind == "direct_counter_entry":
            counters.write_direct(self.pipeline, update.type, request)
        elif kind == "packet_replication_engine_entry":
            replication.write(self.pipeline, update.type, request)
        elif kind == "digest_entry":
            self.digests.write(update.type, request)
        else:
            raise _unimplemented(kind)

    def read(self, query: Any) -> list[Any]:
        """The entities for one entity of a ReadRequest."""
        kind = query.WhichOneof("entity")
        if kind is None:
            invalid("an entity of the read is empty")
        request = getattr(query, kind)
        if kind == "table_entry":
            return tables.read(self.pipeline, request)
        if kind == "counter_entry":
            return counters.read(self.pipeline, request)
        if kind == "direct_counter_entry":
            return counters.read_direct(self.pipeline, request)
        if kind == "packet_replication_engine_entry":
            return replication.read(self.pipeline, request)
        if kind == "digest_entry":
            return self.digests.read(request)
        raise _unimplemented(kind)

    def forwarding_state(self) -> Iterator[Any]:
        """Updates that bring a fresh program to this state: entries, default entries, groups, sessions, digests."""
        query = messages.Entity()
        for bound in self.pipeline.tables.values():
            query.table_entry.table_id = bound.info.id
            if not bound.info.const:
                entries = [entity for entity in self.read(query) if not entity.table_entry.is_const]
                for entity in entries:
                    entity.table_entry.ClearField("is_const")
                    yield messages.Update(type=messages.Update.INSERT, entity=entity)
            if not (bound.table.default_is_const or bound.info.const_default):
                default = messages.Entity(table_entry={"table_id": bound.info.id, "is_default_action": True})
                for entity in self.read(default):
                    yield messages.Update(type=messages.Update.MODIFY, entity=entity)
        group, session, digest = messages.Entity(), messages.Entity(), messages.Entity()
        group.packet_replication_engine_entry.multicast_group_entry.SetInParent()
        session.packet_replication_engine_entry.clone_session_entry.SetInParent()
        digest.digest_entry.SetInParent()
        for wildcard in (group, session, digest):
            for entity in self.read(wildcard):
                yield messages.Update(type=messages.Update.INSERT, entity=entity)


def _unimplemented(kind: str) -> Refused:
    return Refused(Code.UNIMPLEMENTED, f"{kind} is not supported through P4Runtime by this switch")
