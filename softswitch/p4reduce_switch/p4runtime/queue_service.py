"""The service EgressQueues, which is served beside P4Runtime: rates and depths of the egress queues at run time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from p4reduce_runtime.logs import event
from p4reduce_switch.p4runtime.request_guard import Context
from p4reduce_switch.p4runtime.status import Code, RequestError, abort, invalid_argument
from p4reduce_switch.ports.ethernet import EthernetPorts
from p4reduce_switch.program import QueueSetting
from p4reduce_switch.program.packet import MAX_PORT
from p4reduce_switch.queues import queues_pb2 as q
from p4reduce_switch.switch import Switch

_log = logging.getLogger(__name__)

QUEUES: Final = q.DESCRIPTOR.services_by_name["EgressQueues"]


class QueueService:
    """Sets the queues of one switch. No mastership is needed: P4Runtime's arbitration is about its own writes."""

    def __init__(self, switch: Switch, on_refused: Callable[[str, RequestError], None]) -> None:
        self._switch = switch
        self._on_refused = on_refused

    # ---- RPCs; the names are those of queues.proto

    def SetRate(self, request: q.SetRateRequest, context: Context) -> q.SetRateReply:
        """Set a rate in packets a second."""
        self._set("SetRate", self._switch.queues.set_rate, request.queues, request.packets_per_second, context)
        return q.SetRateReply()

    def SetDepth(self, request: q.SetDepthRequest, context: Context) -> q.SetDepthReply:
        """Set a depth in packets."""
        self._set("SetDepth", self._switch.queues.set_depth, request.queues, request.packets, context)
        return q.SetDepthReply()

    def _set(
        self, call: str, change: Callable[[QueueSetting, int], None], queues: q.Queues, value: int, context: Context
    ) -> None:
        setting = QueueSetting(
            value,
            queues.port if queues.HasField("port") else None,
            queues.priority if queues.HasField("priority") else None,
        )
        try:
            with self._switch.lock:
                self._check(setting)
                change(setting, time.monotonic_ns())
        except RequestError as error:
            self._on_refused(call, error)
            abort(context, error)
        event(_log, logging.INFO, "queues set", call=call, value=value, port=setting.port, priority=setting.priority)

    def _check(self, setting: QueueSetting) -> None:
        """Raise RequestError unless the program has queues, and these are some of them."""
        switch = self._switch
        if setting.port is None and setting.priority is not None:
            invalid_argument("a priority is one of a port: name the port too")
        if setting.priority is not None and setting.priority >= switch.queues.priorities:
            invalid_argument(
                f"there is no priority {setting.priority}: a port has {switch.queues.priorities} (--priority-queues)"
            )
        if setting.port is not None:
            self._check_port(setting.port)
        if switch.program is not None and switch.program.queues is None:
            raise RequestError(
                Code.FAILED_PRECONDITION,
                "the program looks at no egress queue, and has none: start the switch with `-- --queue-depth 64`, "
                "so that every program has them, or set rates and depths before the program",
            )

    def _check_port(self, port: int) -> None:
        if port > MAX_PORT:
            invalid_argument(f"port {port} is outside 0..{MAX_PORT}")
        switch = self._switch
        known = list(switch.ports.interfaces) if isinstance(switch.ports, EthernetPorts) else []
        if known and port not in (*known, switch.cpu_port):
            listed = ", ".join(map(str, sorted(known))) or "none"
            raise RequestError(Code.NOT_FOUND, f"the switch has no port {port}; its ports: {listed}")
