"""Multicast groups and clone sessions: P4Runtime's requests on the packet replication engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import quirks
from p4reduce_switch.p4runtime.status import Code, RequestError, invalid_argument
from p4reduce_switch.program import Replica
from p4reduce_switch.program.state.replication import CloneSession, Replication

INSERT, DELETE = p4r.Update.INSERT, p4r.Update.DELETE
MAX_GROUP = (1 << 16) - 1  # mcast_grp is 16 bits wide
MAX_SESSION = (1 << 15) - 1
MAX_LENGTH = (1 << 16) - 1


class ReplicationEngine:
    """The packet replication engine of one program. Callers hold the switch's lock."""

    def __init__(self, state: Replication) -> None:
        self._groups, self._sessions = state.multicast_groups, state.clone_sessions

    def write(self, operation: p4r.Update.Type, request: p4r.PacketReplicationEngineEntry) -> None:
        """Insert, modify or delete a multicast group or a clone session."""
        kind = request.WhichOneof("type")
        if kind == "multicast_group_entry":
            self._write_group(operation, request.multicast_group_entry)
        elif kind == "clone_session_entry":
            self._write_session(operation, request.clone_session_entry)
        else:
            invalid_argument("a packet replication entry is a multicast group or a clone session")

    def read(self, query: p4r.PacketReplicationEngineEntry) -> list[p4r.Entity]:
        """Return one group or session (NOT_FOUND when there is none, as BMv2 answers), or all of them for id 0."""
        kind = query.WhichOneof("type")
        if kind == "multicast_group_entry":
            ids = _ids(query.multicast_group_entry.multicast_group_id, self._groups, "group")
            return [self._group_entity(id) for id in ids]
        if kind == "clone_session_entry":
            ids = _ids(query.clone_session_entry.session_id, self._sessions, "session")
            return [self._session_entity(id) for id in ids]
        invalid_argument("a packet replication entry is a multicast group or a clone session")

    def _write_group(self, operation: p4r.Update.Type, request: p4r.MulticastGroupEntry) -> None:
        id = request.multicast_group_id
        _check_id(operation, id, MAX_GROUP, id in self._groups, "multicast group")
        if operation == DELETE:
            del self._groups[id]
        else:
            self._groups[id] = _decode_replicas(request.replicas)

    def _write_session(self, operation: p4r.Update.Type, request: p4r.CloneSessionEntry) -> None:
        id = request.session_id
        _check_id(operation, id, MAX_SESSION, id in self._sessions, "clone session")
        if operation == DELETE:
            del self._sessions[id]
            return
        if request.class_of_service:
            raise RequestError(Code.UNIMPLEMENTED, "clone sessions have no class of service on this switch")
        if not 0 <= request.packet_length_bytes <= MAX_LENGTH:
            invalid_argument(f"packet_length_bytes {request.packet_length_bytes} is not in 0..{MAX_LENGTH}")
        self._sessions[id] = CloneSession(tuple(_decode_replicas(request.replicas)), request.packet_length_bytes)

    def _group_entity(self, id: int) -> p4r.Entity:
        entity = p4r.Entity()
        out = entity.packet_replication_engine_entry.multicast_group_entry
        out.multicast_group_id = id
        _encode_replicas(self._groups[id], out)
        return entity

    def _session_entity(self, id: int) -> p4r.Entity:
        session = self._sessions[id]
        entity = p4r.Entity()
        out = entity.packet_replication_engine_entry.clone_session_entry
        out.session_id, out.packet_length_bytes = id, session.truncate_len
        _encode_replicas(session.replicas, out)
        return entity


def _check_id(operation: p4r.Update.Type, id: int, largest: int, exists: bool, kind: str) -> None:
    if id == 0:
        invalid_argument(f"0 is no id of a {kind}")
    if id > largest:
        raise RequestError(Code.OUT_OF_RANGE, f"{kind} {id} is above the largest, {largest}")
    if operation == INSERT and exists:
        raise RequestError(Code.ALREADY_EXISTS, f"{kind} {id} exists")
    if operation != INSERT and not exists:
        raise RequestError(Code.NOT_FOUND, f"there is no {kind} {id}")


def _ids(id: int, known: Mapping[int, object], kind: str) -> list[int]:
    if not id:
        return sorted(known)
    if id not in known:
        raise RequestError(Code.NOT_FOUND, f"there is no {kind} {id}")
    return [id]


def _decode_replicas(requests: Iterable[p4r.Replica]) -> list[Replica]:
    replicas = []
    for request in requests:
        if request.WhichOneof("port_kind") is None or (request.WhichOneof("port_kind") == "port" and not request.port):
            invalid_argument("a replica has no port")
        if request.backup_replicas:
            raise RequestError(Code.UNIMPLEMENTED, "backup replicas are not supported")
        replicas.append(Replica(quirks.replica_port(request), request.instance))
    if len(set(replicas)) != len(replicas):
        invalid_argument("a replica (port and instance) is given twice")
    return replicas


def _encode_replicas(replicas: Iterable[Replica], out: p4r.MulticastGroupEntry | p4r.CloneSessionEntry) -> None:
    for replica in replicas:
        quirks.set_replica_port(out.replicas.add(instance=replica.instance), replica.port)
