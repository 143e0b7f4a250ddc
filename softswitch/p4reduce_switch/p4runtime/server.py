"""The P4Runtime server: gRPC on one side, the switch on the other. It also serves the rates of the egress queues."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from p4reduce_runtime.logs import RateLimitedLog, event
from p4reduce_runtime.p4.config.v1 import p4info_pb2 as p4i
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.status import NO_PIPELINE
from p4reduce_runtime.security import Security, listen
from p4reduce_runtime.threads import DaemonThread
from p4reduce_runtime.waiting_calls import connection_options
from p4reduce_switch.p4runtime import pipeline as pipelines
from p4reduce_switch.p4runtime.arbitration import MAX_CONTROLLERS, Arbitration, Controller
from p4reduce_switch.p4runtime.pipeline import Pipeline
from p4reduce_switch.p4runtime.queue_service import QUEUES, QueueService
from p4reduce_switch.p4runtime.request_guard import (
    MAX_OTHERS,
    MAX_PIPELINE_BYTES,
    MAX_WAITING,
    P4RUNTIME,
    Admission,
    Context,
    generic_handler,
)
from p4reduce_switch.p4runtime.status import Code, RequestError, abort, abort_write, invalid_argument
from p4reduce_switch.p4runtime.trace_service import TRACES, TraceService
from p4reduce_switch.ports import PortError
from p4reduce_switch.program import Config, Program
from p4reduce_switch.switch import Switch

_log = logging.getLogger(__name__)

API_VERSION = "1.3.0"
READ_CHUNK = 512
"""Entities in one ReadResponse."""
MAX_CALLS_OF_CONNECTION = 32
"""Concurrent calls of one connection; its further calls wait at the client."""
MAX_CALLS = MAX_WAITING + MAX_CONTROLLERS + MAX_OTHERS + MAX_CALLS_OF_CONNECTION
"""Threads for calls; the last share is the primary controller's."""
KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS = 10_000, 5_000
"""The stream of a controller whose host has failed ends after both, and with it its mastership."""
PIPELINE_WAIT_S = 60.0
"""Seconds that a SetForwardingPipelineConfig waits at most while the program of another one is compiled."""


@dataclass(frozen=True)
class ServerCounters:
    """Counters of a server, and its connected controllers."""

    packet_in_dropped: int
    digests_dropped: int
    """Digest messages dropped since the pipeline was set."""
    slow_controller: int
    """Messages dropped of the controllers that are connected."""
    controllers: int
    primary: bool
    refusals: Mapping[str, int]
    """Refused calls and updates by canonical code."""


class Server:
    """Serves one switch. `address` is "host:port" (port 0: any; see `port`).

    `load_program` makes the program of a p4_device_config, by default `switch.load`.

    With `security` only controllers with a certificate of the authority are served, with `credentials` every client
    that they admit. Raises ConfigError for an address that other hosts can reach without both, unless `insecure`.
    """

    def __init__(
        self,
        switch: Switch,
        address: str,
        load_program: Callable[[Config], Program] | None = None,
        *,
        security: Security | None = None,
        insecure: bool = False,
        credentials: grpc.ServerCredentials | None = None,
        queue_service: bool = False,
    ) -> None:
        """`queue_service`: serve EgressQueues too, for `switch.queues` and so for the programs of `switch.load`."""
        self.switch = switch
        self._load_program = load_program or switch.load
        self.packet_in_dropped = 0
        """Frames to the CPU port without a primary controller to receive them, or shorter than the packet_in header."""
        self._refusals: Counter[str] = Counter()
        self._rate_limited_log = RateLimitedLog(_log)
        self._lock = switch.lock
        self._compiling = threading.Lock()
        """Held while a program is compiled: one at a time. Acquired before `_lock`, never while holding it."""
        self._committed: Pipeline | None = None
        self._saved: Pipeline | None = None
        self._arbitration = Arbitration(switch.device_id)
        self._timers_changed = threading.Condition(cast(Any, self._lock))  # a FairLock has what a Condition calls
        self._stopping = False
        self._clock = DaemonThread(self._run_timers, "p4runtime-timers")
        options = [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MAX_PIPELINE_BYTES),
            ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # newer gRPC waits a minute without it
            ("grpc.http2.max_pings_without_data", 0),  # no limit
            *connection_options(MAX_CALLS_OF_CONNECTION),
        ]
        self._server = grpc.server(ThreadPoolExecutor(MAX_CALLS, "p4runtime"), options=options)
        self._admission = Admission(security is not None, self._primary_peer)
        traces = TraceService(switch, self._count_refusal, self._admission.waiting.remove)
        services: list[tuple[ServiceDescriptor, object]] = [(P4RUNTIME, self), (TRACES, traces)]
        if queue_service:
            services.append((QUEUES, QueueService(switch, self._count_refusal)))
        self._server.add_generic_rpc_handlers(
            [
                generic_handler(service, servicer, admission=self._admission, on_refused=self._count_refusal)
                for service, servicer in services
            ]
        )
        try:
            if credentials is not None:
                self.port = int(self._server.add_secure_port(address, credentials))
            else:
                self.port = listen(
                    self._server,
                    address,
                    security,
                    insecure=insecure,
                    advice="name certificates with --tls-ca, --tls-certificate and --tls-key",
                )
        except RuntimeError as error:
            raise PortError(
                f"cannot serve P4Runtime on {address}: is another switch running there? "
                "Choose another address with --p4runtime (of p4reduce-simple-switch: --grpc-server-addr)"
            ) from error
        switch.on_packet_in = self._packet_in
        switch.on_digest = self._digest

    def start(self) -> None:
        """Begin to serve."""
        self._server.start()
        self._clock.start()

    def stop(self, grace_s: float = 0.5) -> None:
        """End all streams and calls."""
        with self._lock:
            self._stopping = True
            self._timers_changed.notify_all()
        self._server.stop(grace_s).wait(grace_s + 5)
        self._admission.waiting.close()
        if self._clock.is_alive():
            self._clock.join(5)

    def counters(self) -> ServerCounters:
        """Return the counts of this server and of its present pipeline, for the metrics."""
        with self._lock:
            return ServerCounters(
                packet_in_dropped=self.packet_in_dropped,
                digests_dropped=0 if self._committed is None else self._committed.digests.dropped,
                slow_controller=self._arbitration.dropped,
                controllers=self._arbitration.connected,
                primary=self._arbitration.primary is not None,
                refusals=dict(self._refusals),
            )

    def set_pipeline(self, p4info: p4i.P4Info, device_config: bytes) -> None:
        """Load a program without a controller. Raises RequestError for one that cannot be loaded."""
        config = p4r.ForwardingPipelineConfig(p4info=p4info, p4_device_config=device_config)
        self._commit(self._load(config))

    # ---- RPCs; the names are P4Runtime's

    def Write(self, request: p4r.WriteRequest, context: Context) -> p4r.WriteResponse:
        """Apply all updates in order; one that fails does not stop the others."""
        with self._refusing("Write", context), self._lock:
            self._check_target(request)
            self._arbitration.check_primary(request)
            pipeline = self._pipeline()
            if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
                raise RequestError(Code.UNIMPLEMENTED, "only CONTINUE_ON_ERROR batches are supported")
            results = [pipeline.write(update) for update in request.updates]
        refused = [result for result in results if result is not None]
        for result in refused:
            self._count_refusal("Write", result)
        if refused:
            abort_write(context, results)
        return p4r.WriteResponse()

    def Read(self, request: p4r.ReadRequest, context: Context) -> Iterator[p4r.ReadResponse]:
        """Return the entities that the request selects, in one consistent state."""
        with self._refusing("Read", context), self._lock:
            self._check_device(request.device_id)
            pipeline = self._pipeline()
            found = [entity for query in request.entities for entity in pipeline.read(query)]
        for start in range(0, max(1, len(found)), READ_CHUNK):
            yield p4r.ReadResponse(entities=found[start : start + READ_CHUNK])

    def SetForwardingPipelineConfig(
        self, request: p4r.SetForwardingPipelineConfigRequest, context: Context
    ) -> p4r.SetForwardingPipelineConfigResponse:
        """Verify, save or commit a program."""
        with self._refusing("SetForwardingPipelineConfig", context):
            self._check_target(request)
            with self._lock:
                self._arbitration.check_primary(request)
            if request.action == request.COMMIT:
                self._commit_saved(request)
            else:
                self._set_config(request, context.time_remaining())
        return p4r.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(
        self, request: p4r.GetForwardingPipelineConfigRequest, context: Context
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the program that reads and writes refer to."""
        with self._refusing("GetForwardingPipelineConfig", context), self._lock:
            self._check_device(request.device_id)
            config = self._pipeline().config
        response = p4r.GetForwardingPipelineConfigResponse()
        if request.response_type in (request.ALL, request.P4INFO_AND_COOKIE):
            response.config.p4info.CopyFrom(config.p4info)
        if request.response_type in (request.ALL, request.DEVICE_CONFIG_AND_COOKIE):
            response.config.p4_device_config = config.p4_device_config
        if config.HasField("cookie"):
            response.config.cookie.CopyFrom(config.cookie)
        response.config.SetInParent()
        return response

    def Capabilities(self, request: p4r.CapabilitiesRequest, context: Context) -> p4r.CapabilitiesResponse:
        """Return the version of P4Runtime."""
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def StreamChannel(
        self, requests: Iterator[p4r.StreamMessageRequest], context: Context
    ) -> Iterator[p4r.StreamMessageResponse]:
        """Serve one controller's stream: a thread reads it, this generator writes it."""
        controller = Controller(context.peer(), lambda: self._admission.waiting.remove(context))
        try:
            if context.add_callback(controller.end):
                failed = RequestError(Code.INTERNAL, "the switch failed over a stream message")
                read = partial(self._read_stream, controller, requests)
                DaemonThread(read, "p4runtime-stream", failed=lambda _: controller.end(failed)).start()
                yield from controller.messages(context)
        finally:
            with self._lock:
                was_primary = self._arbitration.primary is controller
                self._arbitration.remove(controller)
            if was_primary:
                event(_log, logging.INFO, "primary left", device=self.switch.device_id)

    def _primary_peer(self) -> str:
        primary = self._arbitration.primary
        return "" if primary is None else primary.peer

    @contextmanager
    def _refusing(self, call: str, context: Context) -> Iterator[None]:
        """Count a RequestError, and end the call with it."""
        try:
            yield
        except RequestError as error:
            self._count_refusal(call, error)
            abort(context, error)

    def _count_refusal(self, call: str, error: RequestError) -> None:
        """Count a refused call or update, and log it: rate-limited for each call and reason."""
        reason = str(error.code.name)
        with self._lock:
            self._refusals[reason] += 1
        asked = call == "GetForwardingPipelineConfig" and reason == "FAILED_PRECONDITION"  # whether there is a program
        level = logging.DEBUG if asked else logging.INFO
        self._rate_limited_log.event(
            level, "call refused", f"{call} {reason}", call=call, reason=reason, detail=error.message
        )

    # ---- programs

    def _load(self, config: p4r.ForwardingPipelineConfig) -> Pipeline:
        return pipelines.load(config, self._to_primary, self._timers_changed, self._load_program)

    def _set_config(self, request: p4r.SetForwardingPipelineConfigRequest, time_remaining_s: float | None) -> None:
        if request.action not in (
            request.VERIFY,
            request.VERIFY_AND_SAVE,
            request.VERIFY_AND_COMMIT,
            request.RECONCILE_AND_COMMIT,
        ):
            invalid_argument("the action is not set or not known")
        with self._compile_turn(time_remaining_s):
            pipeline = self._load(request.config)  # takes long: not under the switch's lock
        with self._lock:
            self._arbitration.check_primary(request)
            if request.action == request.VERIFY_AND_SAVE:
                self._saved = pipeline
            elif request.action == request.VERIFY_AND_COMMIT:
                self._commit(pipeline)
            elif request.action == request.RECONCILE_AND_COMMIT:
                self._reconcile(pipeline)

    @contextmanager
    def _compile_turn(self, time_remaining_s: float | None) -> Iterator[None]:
        """Hold `_compiling`; ABORTED when another program is still being compiled after the call's deadline."""
        wait_s = PIPELINE_WAIT_S if time_remaining_s is None else min(PIPELINE_WAIT_S, max(0.0, time_remaining_s))
        if not self._compiling.acquire(timeout=wait_s):
            raise RequestError(Code.ABORTED, "another program is being compiled; set this one again later")
        try:
            yield
        finally:
            self._compiling.release()

    def _reconcile(self, pipeline: Pipeline) -> None:
        """Commit with the forwarding state of the last program, or not at all; counters and registers are reset."""
        last = self._committed
        if last is not None:
            pipeline.remove_initial_entries(last)
        for update in last.forwarding_state() if last is not None else ():
            error = pipeline.write(update)
            if error is not None:
                invalid_argument(f"the forwarding state cannot be kept: {error.message}")
        self._commit(pipeline)

    def _commit_saved(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        if request.HasField("config"):
            invalid_argument("COMMIT takes no config")
        with self._lock:
            if self._saved is None:
                raise RequestError(Code.NOT_FOUND, "no config is saved; use VERIFY_AND_SAVE first")
            self._commit(self._saved)

    def _commit(self, pipeline: Pipeline) -> None:
        with self._lock:
            self._committed, self._saved = pipeline, None
            self._timers_changed.notify_all()
            self.switch.install(pipeline.program)
        config = pipeline.config
        event(
            _log,
            logging.INFO,
            "pipeline set",
            device=self.switch.device_id,
            program=config.p4info.pkg_info.name,
            tables=len(pipeline.tables),
            cookie=config.cookie.cookie if config.HasField("cookie") else None,
        )

    def _pipeline(self) -> Pipeline:
        """Return the saved program, or the committed one; FAILED_PRECONDITION when there is neither."""
        pipeline = self._saved or self._committed
        if pipeline is None:
            raise RequestError(Code.FAILED_PRECONDITION, NO_PIPELINE)
        return pipeline

    def _check_device(self, id: int) -> None:
        if id != self.switch.device_id:
            raise RequestError(Code.NOT_FOUND, f"no device {id} here; there is device {self.switch.device_id}")

    def _check_target(self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest) -> None:
        self._check_device(request.device_id)
        if request.role or request.role_id:
            raise RequestError(Code.NOT_FOUND, "this switch supports only the default role")

    # ---- streams

    def _read_stream(self, controller: Controller, requests: Iterator[p4r.StreamMessageRequest]) -> None:
        """Process messages until the controller closes its side or the call ends."""
        try:
            for request in requests:
                with self._lock:
                    self._stream_message(controller, request)
        except RequestError as error:
            self._count_refusal("StreamChannel", error)
            controller.end(error)
        except grpc.RpcError:  # cancelled, or the connection broke
            controller.end()
        else:
            controller.end()

    def _stream_message(self, controller: Controller, request: p4r.StreamMessageRequest) -> None:
        kind = request.WhichOneof("update")
        if kind == "arbitration":
            changed = self._arbitration.update(controller, request.arbitration)
            if changed:
                self._rate_limited_log.event(
                    logging.INFO, "primary changed", device=self.switch.device_id, election_id=_election(controller)
                )
            if changed and self._committed is not None:
                self._committed.digests.drop_unacknowledged()
            return
        try:
            if self._arbitration.primary is not controller:
                raise RequestError(Code.PERMISSION_DENIED, "Not primary")
            if self._committed is None:
                raise RequestError(Code.FAILED_PRECONDITION, NO_PIPELINE)
            if kind == "packet":
                self._packet_out(self._committed, request.packet)
            elif kind == "digest_ack":
                self._committed.digests.acknowledge(request.digest_ack.digest_id, request.digest_ack.list_id)
            else:
                invalid_argument("a stream message of unknown kind")
        except RequestError as error:
            self._count_refusal("StreamChannel", error)
            controller.send_or_drop(_stream_error(error, request))

    def _packet_out(self, pipeline: Pipeline, packet: p4r.PacketOut) -> None:
        if self.switch.cpu_port is None:
            raise RequestError(Code.FAILED_PRECONDITION, "the switch has no CPU port: start it with --cpu-port")
        header = pipeline.packet_out
        self.switch.packet_out(header.frame(packet) if header is not None else packet.payload)

    def _packet_in(self, frame: bytes) -> None:
        """Send a frame to the CPU port as a packet-in."""
        with self._lock:
            primary, pipeline = self._arbitration.primary, self._committed
            message = p4r.StreamMessageResponse()
            if primary is None or pipeline is None:
                self.packet_in_dropped += 1
                return
            header = pipeline.packet_in
            packet = p4r.PacketIn(payload=frame) if header is None else header.packet_in(frame)
            if packet is None:
                self.packet_in_dropped += 1
                return
            message.packet.CopyFrom(packet)
            if not primary.send_or_drop(message):
                self.packet_in_dropped += 1

    # ---- digests and idle timeouts

    def _digest(self, name: str, rows: list[tuple[int, ...]]) -> None:
        with self._lock:
            if self._committed is not None:
                self._committed.digests.add(name, rows)

    def _to_primary(self, message: p4r.StreamMessageResponse) -> bool:
        primary = self._arbitration.primary
        return primary is not None and primary.send_or_drop(message)

    def _run_timers(self) -> None:
        """Send digest lists and idle timeout notifications when they are due."""
        with self._lock:
            while not self._stopping:
                due = [time.monotonic() + 60.0]
                if self._committed is not None:
                    ticks = (self._committed.digests.tick(), self._committed.idle_timeouts.tick())
                    due += [at for at in ticks if at is not None]
                self._timers_changed.wait(max(0.0, min(due) - time.monotonic()))


def _election(controller: Controller) -> str:
    """Return its election id as one number; "none" for a controller without one."""
    if controller.election_id is None:
        return "none"
    high, low = controller.election_id
    return str(high << 64 | low)


def _stream_error(error: RequestError, request: p4r.StreamMessageRequest) -> p4r.StreamMessageResponse:
    message = p4r.StreamMessageResponse()
    message.error.canonical_code, message.error.message = error.number, error.message
    if request.WhichOneof("update") == "packet":
        message.error.packet_out.packet_out.CopyFrom(request.packet)
    elif request.WhichOneof("update") == "digest_ack":
        message.error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
    else:
        message.error.other.SetInParent()
    return message
