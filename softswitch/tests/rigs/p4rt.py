"""What the P4Runtime tests share: the test program, a served switch, BMv2, and raw requests."""

from __future__ import annotations

import contextlib
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import text_format
from google.rpc import status_pb2

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4.v1 import p4runtime_pb2_grpc
from p4reduce_runtime.p4runtime import codec
from p4reduce_runtime.p4runtime.schema import Schema, parse_p4info
from p4reduce_runtime.security import SWITCH, Security, dial
from p4reduce_runtime.streams import received
from p4reduce_switch.p4runtime import Server
from p4reduce_switch.ports import DatapathLoop
from p4reduce_switch.ports.ethernet import EthernetPorts
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S
from rigs.ports import own_address
from rigs.simple_switch import thrift

_PROGRAM = Path(__file__).with_name("every_kind")
P4INFO = parse_p4info(_PROGRAM.with_suffix(".p4info.txtpb").read_text())
DEVICE_CONFIG = _PROGRAM.with_suffix(".json").read_bytes()
SCHEMA = Schema.from_p4info(P4INFO)


class MemoryPorts:
    """Ports whose frames go to a queue."""

    def __init__(self) -> None:
        self.sent: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self.full: set[int] = set()

    recorder = None

    def wait_when_full(self, wait: bool) -> None:
        """There is always room."""

    def flush(self) -> None:
        """No frame waits."""

    def send(self, port: int, frame: bytes) -> bool:
        self.sent.put((port, frame))
        return True

    def datapath_loop(self, wake: int) -> DatapathLoop:
        return EthernetPorts({}).datapath_loop(wake)

    def close(self) -> None:
        pass


class Served:
    """A switch, with ports in memory if it has none, and its P4Runtime server with `options` on a free port."""

    def __init__(self, switch: Switch | None = None, **options: Any) -> None:
        self.switch = switch or Switch()
        self.ports = MemoryPorts()
        if self.switch.ports is None:
            self.switch.add_ports(self.ports)
        self.server = Server(self.switch, "127.0.0.1:0", **options)
        self.server.start()
        self.address = f"127.0.0.1:{self.server.port}"

    def close(self) -> None:
        self.server.stop()
        self.switch.close()


@contextlib.contextmanager
def served(switch: Switch | None = None, **options: Any) -> Iterator[Served]:
    one = Served(switch, **options)
    try:
        yield one
    finally:
        one.close()


@contextlib.contextmanager
def bmv2(*interfaces: str) -> Iterator[str]:
    """simple_switch_grpc without a program; its P4Runtime address."""
    name = shutil.which("simple_switch_grpc")
    if name is None:
        pytest.skip("needs simple_switch_grpc on PATH")
    address = own_address()
    ports = [word for interface in interfaces for word in ("-i", interface)]
    command = [
        name,
        "--device-id",
        "1",
        "--no-p4",
        *thrift(),
        *ports,
        "--",
        "--grpc-server-addr",
        address,
        "--cpu-port",
        "510",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield address
        finally:
            process.terminate()
            process.wait(LIMIT_S)


class Raw:
    """A P4Runtime client: one channel, one stream, messages as they are, or entries of the program that it has set."""

    schema: Schema
    """The names of that program."""

    def __init__(
        self,
        address: str,
        election_id: tuple[int, int] | None = (0, 1),
        device_id: int = 1,
        security: Security | None = None,
    ) -> None:
        self.election_id = election_id
        self.device_id = device_id
        self.channel = dial(address, security, role=SWITCH)
        self.rpc = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)
        self.received: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stream: Any = None

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exception: object) -> None:
        self._outgoing.put(None)
        self.channel.close()

    def open(self, wait_for_ready: bool = False) -> None:
        """Open the stream; `wait_for_ready`: also of a switch that is about to start."""
        requests, limit_s = iter(self._outgoing.get, None), 2 * LIMIT_S
        self._stream = received(self.rpc.StreamChannel(requests, timeout=limit_s, wait_for_ready=wait_for_ready))

    def send(self, **fields: Any) -> None:
        self._outgoing.put(p4r.StreamMessageRequest(**fields))

    def next(self) -> Any:
        """The next message on the stream, or the error it ends with."""
        return next(self._stream)

    def arbitrate(self, device_id: int | None = None, **fields: Any) -> Any:
        if self._stream is None:
            self.open()
        update = p4r.MasterArbitrationUpdate(device_id=self._or_own(device_id), **fields)
        if self.election_id is not None:
            update.election_id.high, update.election_id.low = self.election_id
        self.send(arbitration=update)
        return self.next().arbitration

    def _or_own(self, device_id: int | None) -> int:
        return self.device_id if device_id is None else device_id

    def addressed(self, request: Any, device_id: int | None = None) -> Any:
        request.device_id = self._or_own(device_id)
        if self.election_id is not None:
            request.election_id.high, request.election_id.low = self.election_id
        return request

    def set_config(self, action: str = "VERIFY_AND_COMMIT", config: Any = None, **where: Any) -> None:
        request = self.addressed(p4r.SetForwardingPipelineConfigRequest(), **where)
        request.action = getattr(request, action)
        if config is not None:
            request.config.CopyFrom(config)
        self.rpc.SetForwardingPipelineConfig(request, timeout=LIMIT_S)
        if config is not None:
            self.schema = Schema.from_p4info(config.p4info)

    def set_program(self, stem: Path) -> None:
        """Set the program of these two files, STEM.json and STEM.p4info.txtpb."""
        p4info = parse_p4info(stem.with_suffix(".p4info.txtpb").read_text())
        self.set_config(config=config(stem.with_suffix(".json").read_bytes(), p4info=p4info))

    def get_config(self, kind: str = "ALL", device_id: int | None = None) -> Any:
        request = p4r.GetForwardingPipelineConfigRequest(device_id=self._or_own(device_id))
        request.response_type = getattr(request, kind)
        return self.rpc.GetForwardingPipelineConfig(request, timeout=LIMIT_S).config

    def write(self, *updates: tuple[str, Any]) -> list[str]:
        """The canonical code of each update; raises what is not a batch error."""
        return [code_name(error.canonical_code) for error in self.errors(*updates)]

    def errors(self, *updates: tuple[str, Any]) -> list[Any]:
        """The p4.v1.Error of each update, with code 0 for one that was done; raises what is not a batch error."""
        request = self.addressed(p4r.WriteRequest())
        for operation, entity in updates:
            encoded = entity if isinstance(entity, p4r.Entity) else codec.encode(self.schema, entity)
            request.updates.add(type=getattr(p4r.Update, operation)).entity.CopyFrom(encoded)
        try:
            self.rpc.Write(request, timeout=LIMIT_S)
        except grpc.RpcError as error:
            details = dict(error.trailing_metadata()).get("grpc-status-details-bin")
            if details is None:
                raise
            return [_error(packed) for packed in status_pb2.Status.FromString(details).details]
        return [p4r.Error() for _ in updates]

    def insert(self, *entries: Any) -> None:
        """Insert entries, none of which may be refused."""
        self.do("INSERT", *entries)

    def do(self, operation: str, *entries: Any) -> None:
        """Insert, modify or delete entries, none of which may be refused."""
        errors = self.errors(*((operation, entry) for entry in entries))
        assert not any(error.canonical_code for error in errors), errors

    def read(self, *entities: Any, device_id: int | None = None) -> list[Any]:
        request = p4r.ReadRequest(device_id=self._or_own(device_id), entities=entities)
        return [entity for reply in self.rpc.Read(request, timeout=LIMIT_S) for entity in reply.entities]


@contextlib.contextmanager
def primary(address: str, **options: Any) -> Iterator[Raw]:
    """A client, with `options` of Raw, that is the primary controller."""
    with Raw(address, **options) as one:
        one.open(wait_for_ready=True)
        assert one.arbitrate().status.code == 0
        yield one


def ready(address: str, process: subprocess.Popen[Any]) -> None:
    """Return when a switch answers at its address. AssertionError if its process ends before."""
    with grpc.insecure_channel(address) as channel:
        found = threading.Event()
        channel.subscribe(lambda state: state is grpc.ChannelConnectivity.READY and found.set(), True)
        deadline = time.monotonic() + LIMIT_S
        while not found.wait(0.1):
            assert process.poll() is None and time.monotonic() < deadline, f"{process.args} does not start"


def _error(packed: Any) -> Any:
    error = p4r.Error()
    assert packed.Unpack(error)
    return error


def code_name(number: int) -> str:
    return next(code.name for code in grpc.StatusCode if code.value[0] == number)


def config(device_config: bytes = DEVICE_CONFIG, cookie: int | None = None, p4info: Any = P4INFO) -> Any:
    message = p4r.ForwardingPipelineConfig(p4info=p4info, p4_device_config=device_config)
    if cookie is not None:
        message.cookie.cookie = cookie
    return message


def code_of(call: Any, *arguments: Any, **keywords: Any) -> str:
    """The name of the status a call fails with."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **keywords)
    return str(caught.value.code().name)


def entry(table: str, match: str = "", action: str | None = None, priority: int = 0, **params: bytes) -> Any:
    """A table entry; `match` is the repeated field in protobuf's text form."""
    entity = p4r.Entity()
    out = entity.table_entry
    text_format.Merge(match, out)
    out.table_id = SCHEMA.tables[table].id
    out.priority = priority
    if action is not None:
        info = SCHEMA.actions[action]
        out.action.action.action_id = info.id
        ids = {param.name: param.id for param in info.params}
        for name, value in params.items():
            out.action.action.params.add(param_id=ids[name], value=value)
    return entity
