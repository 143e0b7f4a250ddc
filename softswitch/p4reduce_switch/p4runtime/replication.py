"""Multicast groups and clone sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_contracts.p4runtime import quirks
from p4reduce_switch.p4runtime.pipeline import Pipeline
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.program import CloneSession, Replica

INSERT, DELETE = p4r.Update.INSERT, p4r.Update.DELETE
MAX_GROUP = (1 << 16) - 1  # mcast_grp is 16 bits wide
MAX_SESSION = (1 << 15) - 1
MAX_LENGTH = (1 << 16) - 1


def write(pipeline: Pipeline, operation: int, request: Any) -> None:
    """Inserts, modifies or deletes a group or a session."""
    kind = request.WhichOneof("type")
    if kind == "multicast_group_entry":
        _write_group(pipeline, operation, request.multicast_group_entry)
    elif kind == "clone_session_entry":
        _write_session(pipeline, operation, request.clone_session_entry)
    else:
        invalid("a packet replication entry is a multicast group or a clone session")


def _write_group(pipeline: Pipeline, operation: int, request: Any) -> None:
    groups, id = pipeline.program.replication.multicast_groups, request.multicast_group_id
    _check(operation, id, MAX_GROUP, id in groups, "multicast group")
    if operation == DELETE:
        del groups[id]
    else:
        groups[id] = _replicas(request.replicas)


def _write_session(pipeline: Pipeline, operation: int, request: Any) -> None:
    sessions, id = pipeline.program.replication.clone_sessions, request.session_id
    _check(operation, id, MAX_SESSION, id in sessions, "clone session")
    if operation == DELETE:
        del sessions[id]
        return
    if request.class_of_service:
        raise Refused(Code.UNIMPLEMENTED, "clone sessions have no class of service on this switch")
    if not 0 <= request.packet_length_bytes <= MAX_LENGTH:
        invalid(f"packet_length_bytes {request.packet_length_bytes} is not in 0..{MAX_LENGTH}")
    sessions[id] = CloneSession(tuple(_replicas(request.replicas)), request.packet_length_bytes)


def _check(operation: int, id: int, largest: int, exists: bool, what: str) -> None:
    if id == 0:
        invalid(f"0 is no id of a {what}")
    if id > largest:
        raise Refused(Code.OUT_OF_RANGE, f"{what} {id} is above the largest, {largest}")
    if operation == INSERT and exists:
        raise Refused(Code.ALREADY_EXISTS, f"{what} {id} exists")
    if operation != INSERT and not exists:
        raise Refused(Code.NOT_FOUND, f"there is no {what} {id}")


def _replicas(requests: Any) -> list[Replica]:
    replicas = []
    for request in requests:
        if request.WhichOneof("port_kind") is None or (request.WhichOneof("port_kind") == "port" and not request.port):
            invalid("a replica has no port")
        if request.backup_replicas:
            raise Refused(Code.UNIMPLEMENTED, "backup replicas are not supported")
        try:
            replicas.append(Replica(quirks.replica_port(request), request.instance))
        except ValueError as error:
            invalid(str(error))
    if len(set(replicas)) != len(replicas):
        invalid("a replica (port and instance) is given twice")
    return replicas


def read(pipeline: Pipeline, query: Any) -> list[Any]:
    """One group or session (NOT_FOUND when there is none, as BMv2 answers), or all of them for id 0."""
    engine = pipeline.program.replication
    kind = query.WhichOneof("type")
    if kind == "multicast_group_entry":
        groups = engine.multicast_groups
        return [_group(id, groups[id]) for id in _ids(query.multicast_group_entry.multicast_group_id, groups, "group")]
    if kind == "clone_session_entry":
        sessions = engine.clone_sessions
        return [_session(id, sessions[id]) for id in _ids(query.clone_session_entry.session_id, sessions, "session")]
    invalid("a packet replication entry is a multicast group or a clone session")


def _ids(id: int, known: Mapping[int, Any], what: str) -> list[int]:
    if not id:
        return sorted(known)
    if id not in known:
        raise Refused(Code.NOT_FOUND, f"there is no {what} {id}")
    return [id]


def _group(id: int, replicas: Sequence[Replica]) -> Any:
    entity = p4r.Entity()
    group = entity.packet_replication_engine_entry.multicast_group_entry
    group.multicast_group_id = id
    _put(replicas, group)
    return entity


def _session(id: int, session: CloneSession) -> Any:
    entity = p4r.Entity()
    out = entity.packet_replication_engine_entry.clone_session_entry
    out.session_id, out.packet_length_bytes = id, session.truncate_len
    _put(session.replicas, out)
    return entity


def _put(replicas: Any, out: Any) -> None:
    for replica in replicas:
        quirks.set_replica_port(out.replicas.add(instance=replica.instance), replica.port)
