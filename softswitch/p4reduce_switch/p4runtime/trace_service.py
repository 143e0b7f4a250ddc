"""The service PacketTraces, which is served beside P4Runtime: what frames do, from when a client asks."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from p4reduce_runtime.logs import event
from p4reduce_switch.p4runtime.request_guard import Context
from p4reduce_switch.p4runtime.status import Code, RequestError, abort, invalid_argument
from p4reduce_switch.program import PacketTrace, ProgramError
from p4reduce_switch.program.packet import MAX_PORT
from p4reduce_switch.switch import Switch, Watch
from p4reduce_switch.trace import trace_pb2 as pb

_log = logging.getLogger(__name__)

TRACES: Final = pb.DESCRIPTOR.services_by_name["PacketTraces"]
MAX_WAITING: Final = 1000
"""Traces that wait for a client; later ones are lost."""
MAX_WATCHES: Final = 8
"""Calls at a time: each lasts as long as its client likes, and there are few for other callers than the primary."""
MAX_PARTS: Final = 16
POLL_S: Final = 0.5


class TraceService:
    """Traces the frames of one switch. No mastership is needed: it changes no state of the program."""

    def __init__(
        self, switch: Switch, on_refused: Callable[[str, RequestError], None], admitted: Callable[[Context], object]
    ) -> None:
        """`admitted` is called with a call that need not be waited for."""
        self._switch, self._on_refused, self._admitted = switch, on_refused, admitted

    def Watch(self, request: pb.WatchRequest, context: Context) -> Iterator[pb.WatchReply]:  # noqa: N802
        """Send traces until the client ends the call, or all packets it asked for have been sent."""
        self._admitted(context)
        waiting: queue.Queue[PacketTrace | None] = queue.Queue(MAX_WAITING)
        lost = 0

        def take(trace: PacketTrace | None) -> None:
            nonlocal lost
            try:
                waiting.put_nowait(trace)
            except queue.Full:
                lost += 1

        try:
            watch = _watch(request, take)
            watch.at_end = lambda: take(None)
            if not self._switch.watch(watch, MAX_WATCHES):
                raise RequestError(Code.RESOURCE_EXHAUSTED, f"{MAX_WATCHES} clients trace packets already: end one")
        except (RequestError, ProgramError) as error:
            refused = error if isinstance(error, RequestError) else RequestError(Code.FAILED_PRECONDITION, str(error))
            self._on_refused("Watch", refused)
            abort(context, refused)
        event(_log, logging.INFO, "trace on", port=watch.port, packets=request.packets)
        try:
            yield pb.WatchReply()
            context.add_callback(lambda: take(None))  # ends the wait when the call ends
            while context.is_active() and not _ended(self._switch, watch, waiting):
                try:
                    trace = waiting.get(timeout=POLL_S)
                except queue.Empty:
                    continue
                if trace is None:
                    return
                yield pb.WatchReply(trace=msgspec.json.encode(trace), lost=lost)
        finally:
            self._switch.unwatch(watch)
            event(_log, logging.INFO, "trace off", lost=lost)


def _ended(switch: Switch, watch: Watch, waiting: queue.Queue[PacketTrace | None]) -> bool:
    """Return whether all traces have been taken from the queue, and there will be no other."""
    if watch.left != 0 or not waiting.empty():
        return False
    with switch.lock:  # a frame that has been counted has also been run
        return waiting.empty() and not watch.unfinished


def _watch(request: pb.WatchRequest, take: Callable[[PacketTrace], None]) -> Watch:
    """Return what the request asks for. Raises RequestError."""
    port = request.port if request.HasField("port") else None
    if port is not None and port > MAX_PORT:
        invalid_argument(f"port {port} is outside 0..{MAX_PORT}")
    if len(request.where) > MAX_PARTS:
        invalid_argument(f"a trace is of frames with at most {MAX_PARTS} parts, not {len(request.where)}")
    where = []
    for part in request.where:
        mask = part.mask or b"\xff" * len(part.value)
        if not part.value or len(mask) != len(part.value):
            invalid_argument("the bytes of a frame to trace are empty, or their mask has another length")
        where.append((part.offset, part.value, mask))
    return Watch(take, port, tuple(where), request.packets or None)
