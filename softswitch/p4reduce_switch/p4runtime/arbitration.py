"""Election of the primary controller (spec, "Client Arbitration and Controller Replication"), default role only."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

import grpc

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.status import ELECTION_ID_USED
from p4reduce_switch.p4runtime.status import Code, RequestError, abort, invalid_argument

MAX_CONTROLLERS = 16
MAX_QUEUED = 10_000
"""Packet-ins, digest lists and idle notifications waiting for a slow controller; more are dropped and counted."""

ElectionId = tuple[int, int]


class Controller:
    """A connected controller: the send queue of its stream, and its election id once it has one."""

    def __init__(self, peer: str, on_arbitrated: Callable[[], object]) -> None:
        """`peer` is gRPC's name of its connection. `on_arbitrated` is called when it is first taken as a controller."""
        self.peer = peer
        self.on_arbitrated = on_arbitrated
        self.arbitrated = False
        self.election_id: ElectionId | None = None
        self.dropped = 0
        self._queue: queue.SimpleQueue[p4r.StreamMessageResponse | RequestError | None] = queue.SimpleQueue()

    def send(self, message: p4r.StreamMessageResponse) -> None:
        """Queue a message that must be delivered."""
        self._queue.put(message)

    def send_or_drop(self, message: p4r.StreamMessageResponse) -> bool:
        """Queue a packet, digest list or notification; return False, and count it, when the queue is full."""
        if self._queue.qsize() >= MAX_QUEUED:
            self.dropped += 1
            return False
        self._queue.put(message)
        return True

    def end(self, error: RequestError | None = None) -> None:
        """End the stream after the queued messages, with an error if there is one."""
        self._queue.put(error)

    def messages(self, context: grpc.ServicerContext) -> Iterator[p4r.StreamMessageResponse]:
        """Yield the messages to send on the stream, until `end`."""
        while (item := self._queue.get()) is not None:
            if isinstance(item, RequestError):
                abort(context, item)
            yield item


class Arbitration:
    """The connected controllers and the primary among them. Callers hold the switch's lock."""

    def __init__(self, device_id: int) -> None:
        self.primary: Controller | None = None
        self._device_id = device_id
        self._controllers: list[Controller] = []
        self._highest: ElectionId | None = None

    @property
    def connected(self) -> int:
        """The number of controllers that have arbitrated and not disconnected."""
        return len(self._controllers)

    @property
    def dropped(self) -> int:
        """Messages dropped because the queues of connected controllers were full."""
        return sum(controller.dropped for controller in self._controllers)

    def check_primary(self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest) -> None:
        """Raise PERMISSION_DENIED unless the request carries the primary's election id."""
        if self.primary is None or _election_id(request) != self.primary.election_id:
            raise RequestError(Code.PERMISSION_DENIED, "Not primary")

    def update(self, controller: Controller, request: p4r.MasterArbitrationUpdate) -> bool:
        """Apply a MasterArbitrationUpdate: add the controller or change its election id, and send notifications.

        Return whether the primary has changed. A RequestError ends the controller's stream.
        """
        self._check(controller, request)
        if not controller.arbitrated:
            controller.arbitrated = True
            controller.on_arbitrated()
            self._controllers.append(controller)
        before = self.primary
        id_before, controller.election_id = controller.election_id, _election_id(request)
        new = controller.election_id
        if new is not None and (self._highest is None or new >= self._highest):
            self._highest = new
            self.primary = controller
            if before is controller and id_before == new:
                self._notify(controller)
            else:
                self._notify_all()
        elif before is controller:  # it has stepped down
            self.primary = None
            self._notify_all()
        else:
            self._notify(controller)
        return self.primary is not before

    def _check(self, controller: Controller, request: p4r.MasterArbitrationUpdate) -> None:
        if request.device_id != self._device_id:
            if controller.arbitrated:
                raise RequestError(Code.FAILED_PRECONDITION, "a stream cannot change its device")
            raise RequestError(Code.NOT_FOUND, f"no device {request.device_id} here; there is device {self._device_id}")
        if request.role.name or request.role.id or request.role.HasField("config"):
            invalid_argument("this switch supports only the default role, without a config")
        id = _election_id(request)
        others = [other for other in self._controllers if other is not controller]
        if id is not None and any(other.election_id == id for other in others):
            invalid_argument(ELECTION_ID_USED)
        if len(others) >= MAX_CONTROLLERS:
            raise RequestError(Code.RESOURCE_EXHAUSTED, f"{MAX_CONTROLLERS} controllers are connected already")

    def remove(self, controller: Controller) -> None:
        """Remove a controller whose stream has ended; a backup becomes primary only by a new election id."""
        if controller in self._controllers:
            self._controllers.remove(controller)
        if controller is self.primary:
            self.primary = None
            self._notify_all()

    def _notify_all(self) -> None:
        """Send the arbitration status to all controllers, to the primary last."""
        for controller in sorted(self._controllers, key=lambda one: one is self.primary):
            self._notify(controller)

    def _notify(self, controller: Controller) -> None:
        message = p4r.StreamMessageResponse()
        out = message.arbitration
        out.device_id = self._device_id
        if self._highest is not None:
            out.election_id.high, out.election_id.low = self._highest
        if self.primary is controller:
            out.status.code, out.status.message = Code.OK.value[0], "Is primary"
        elif self.primary is not None:
            out.status.code, out.status.message = Code.ALREADY_EXISTS.value[0], "Is backup"
        else:
            out.status.code, out.status.message = Code.NOT_FOUND.value[0], "There is no primary"
        controller.send(message)


def _election_id(
    request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest | p4r.MasterArbitrationUpdate,
) -> ElectionId | None:
    if not request.HasField("election_id"):
        return None
    return (request.election_id.high, request.election_id.low)
