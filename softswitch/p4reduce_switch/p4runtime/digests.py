"""Digests: batched into lists for the primary controller; a message is not repeated before its acknowledgement."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.schema import DigestInfo, Schema
from p4reduce_switch.p4runtime.encoding import encode_value
from p4reduce_switch.p4runtime.status import Code, RequestError, invalid_argument

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
DEFAULT_LIST_SIZE = 1024  # for max_list_size 0, "no limit"
MAX_UNACKNOWLEDGED = 65_536  # beyond that, a digest is dropped and counted

Values = tuple[int, ...]


@dataclass
class _Digest:
    """One digest of the program, enabled by a DigestEntry."""

    info: DigestInfo
    config: p4r.DigestEntry
    buffer: list[Values] = field(default_factory=list)
    deadline: float = 0.0  # when the buffer must be sent, if it holds anything
    unacknowledged: dict[int, list[Values]] = field(default_factory=dict)  # by list id
    known: set[Values] = field(default_factory=set)  # buffered or unacknowledged
    next_list_id: int = 1


class Digests:
    """All digests of a program. Callers hold the switch's lock.

    `send(StreamMessageResponse)` sends a list to the primary controller and returns whether there is one; `changed` is
    notified when `tick` must be called earlier than the time it returned.
    """

    def __init__(
        self,
        schema: Schema,
        send: Callable[[p4r.StreamMessageResponse], bool],
        changed: threading.Condition,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dropped = 0
        self._changed = changed
        self._schema = schema
        self._send = send
        self._clock = clock
        self._enabled: dict[int, _Digest] = {}
        self._ids = {digest.name: digest.id for digest in schema.digests}
        self._expiries: list[tuple[float, int, int]] = []  # (when, digest id, list id) of unacknowledged lists

    # ---- configuration

    def write(self, operation: p4r.Update.Type, request: p4r.DigestEntry) -> None:
        """Enable, reconfigure or disable a digest."""
        id = self._check(request.digest_id)
        enabled = id in self._enabled
        if operation == INSERT and enabled:
            raise RequestError(Code.ALREADY_EXISTS, f"digest {id} is already configured")
        if operation != INSERT and not enabled:
            raise RequestError(Code.NOT_FOUND, f"digest {id} is not configured")
        if operation == DELETE:
            del self._enabled[id]
            return
        config = request.config
        if config.max_timeout_ns < 0 or config.max_list_size < 0 or config.ack_timeout_ns < 0:
            invalid_argument("the numbers of a digest config are not negative")
        if operation == INSERT:
            self._enabled[id] = _Digest(self._schema.digests.by_id[id], p4r.DigestEntry())
        self._enabled[id].config.CopyFrom(request)

    def read(self, query: p4r.DigestEntry) -> list[p4r.Entity]:
        """Return the configuration of one digest (NOT_FOUND when it is disabled), or of all enabled ones."""
        if query.digest_id:
            self._check(query.digest_id)
            if query.digest_id not in self._enabled:
                raise RequestError(Code.NOT_FOUND, f"digest {query.digest_id} is not configured")
        wanted = [query.digest_id] if query.digest_id else sorted(self._enabled)
        return [p4r.Entity(digest_entry=self._enabled[id].config) for id in wanted]

    def _check(self, id: int) -> int:
        if id not in self._schema.digests.by_id:
            invalid_argument(f"the program has no digest with id {id}")
        return id

    # ---- data

    def add(self, name: str, rows: list[Values]) -> None:
        """Add digest messages from the program."""
        digest = self._enabled.get(self._ids.get(name, 0))
        if digest is None:
            return
        for values in rows:
            if values in digest.known:
                continue
            if len(digest.known) >= MAX_UNACKNOWLEDGED:
                self.dropped += 1
                continue
            if not digest.buffer:
                digest.deadline = self._clock() + digest.config.config.max_timeout_ns / 1e9
                self._notify_changed()
            digest.buffer.append(values)
            digest.known.add(values)
            settings = digest.config.config
            if settings.max_timeout_ns == 0 or len(digest.buffer) >= (settings.max_list_size or DEFAULT_LIST_SIZE):
                self._flush(digest)

    def acknowledge(self, digest_id: int, list_id: int) -> None:
        """Process a DigestListAck; an unknown or old list is ignored."""
        self._check(digest_id)
        digest = self._enabled.get(digest_id)
        if digest is not None:
            self._drop(digest, list_id)

    def drop_unacknowledged(self) -> None:
        """Drop the unacknowledged lists when the primary changes, so that their messages may be sent again."""
        for digest in self._enabled.values():
            for list_id in list(digest.unacknowledged):
                self._drop(digest, list_id)

    def tick(self) -> float | None:
        """Send lists that are due and drop expired ones; return when to call again (monotonic, s), or None."""
        now = self._clock()
        waiting: list[float] = []
        for digest in self._enabled.values():
            if digest.buffer and digest.deadline <= now:
                self._flush(digest)
            elif digest.buffer:
                waiting.append(digest.deadline)
        while self._expiries and self._expiries[0][0] <= now:
            _, digest_id, list_id = heapq.heappop(self._expiries)
            if digest_id in self._enabled:
                self._drop(self._enabled[digest_id], list_id)
        if self._expiries:
            waiting.append(self._expiries[0][0])
        return min(waiting, default=None)

    def _flush(self, digest: _Digest) -> None:
        values, digest.buffer = digest.buffer, []
        list_id, digest.next_list_id = digest.next_list_id, digest.next_list_id + 1
        sent = self._send(p4r.StreamMessageResponse(digest=_digest_list(digest.info, list_id, values)))
        ack_timeout_s = digest.config.config.ack_timeout_ns / 1e9
        digest.unacknowledged[list_id] = values
        if not sent or not ack_timeout_s:
            self._drop(digest, list_id)
            return
        heapq.heappush(self._expiries, (self._clock() + ack_timeout_s, digest.info.id, list_id))
        self._notify_changed()

    def _drop(self, digest: _Digest, list_id: int) -> None:
        digest.known.difference_update(digest.unacknowledged.pop(list_id, ()))

    def _notify_changed(self) -> None:
        """The time that `tick` returned may be too late now."""
        self._changed.notify_all()


def _digest_list(info: DigestInfo, list_id: int, values: list[Values]) -> p4r.DigestList:
    message = p4r.DigestList(digest_id=info.id, list_id=list_id, timestamp=time.time_ns())
    for row in values:
        data = message.data.add()
        for member, value in zip(info.fields, row, strict=True):
            out = getattr(data, info.kind).members.add() if info.kind else data
            if member.kind == "bool":
                out.bool = bool(value)
            else:
                out.bitstring = encode_value(value, member)
    return message
