"""BMv2's simple_switch_grpc as a target. It needs neither interfaces nor root: frames go through its gRPC
dataplane service, which ends a stream only after every frame that came by it has been dealt with. So one stream
a frame tells exactly what that frame caused, and there is nothing to wait for by the clock.
"""

from __future__ import annotations

import queue
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from conformance.case import Outputs
from p4reduce_runtime.streams import received
from rigs.limits import LIMIT_S
from rigs.simple_switch import thrift

SWITCH = shutil.which("simple_switch_grpc")
CPU_PORT = 510
DEVICE_ID = 1
PACKET_OUT_QUIET_S = 0.2
PORT_QUIET_S = 0.3
ENDING_S = 2.0


def _dataplane_messages() -> tuple[Any, Any, Any, Any]:
    """PacketStreamRequest, PacketStreamResponse (id, device_id, port, packet), and those of SetPortOperStatus."""
    file = descriptor_pb2.FileDescriptorProto(name="p4/bm/dataplane_interface.proto", package="p4.bm", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    fields = (
        ("id", kinds.TYPE_UINT64),
        ("device_id", kinds.TYPE_UINT64),
        ("port", kinds.TYPE_UINT32),
        ("packet", kinds.TYPE_BYTES),
    )
    names = ("PacketStreamRequest", "PacketStreamResponse")
    for name in names:
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, 1):
            message.field.add(name=field, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    status = file.message_type.add(name="SetPortOperStatusRequest")
    for number, (field, kind) in enumerate(
        (("device_id", kinds.TYPE_UINT64), ("port", kinds.TYPE_UINT32), ("oper_status", kinds.TYPE_UINT32)), 1
    ):  # the status is an enum: the same on the wire
        status.field.add(name=field, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    file.message_type.add(name="SetPortOperStatusResponse")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    request, response, set_status, status_set = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p4.bm.{name}"))
        for name in (*names, "SetPortOperStatusRequest", "SetPortOperStatusResponse")
    )
    return request, response, set_status, status_set


def build() -> str:
    """Return what `simple_switch_grpc --version` says: a version and its build's commit, "1.15.5-693e69e6"."""
    assert SWITCH is not None
    answer = subprocess.run([SWITCH, "--version"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return answer.stdout.strip()


def release(build: str) -> str:
    """Return the version in a build's name: "1.15.5" for "1.15.5-693e69e6"."""
    return build.partition("-")[0]


class Bmv2Error(Exception):
    """BMv2 ended, or did not answer, where it should have; says over what."""


class Bmv2Target:
    """A fresh simple_switch_grpc without a program; with `log` it logs each step of each packet there."""

    def __init__(self, log: Path | None = None) -> None:
        if SWITCH is None:
            raise FileNotFoundError("simple_switch_grpc is not on PATH: install BMv2 (behavioral-model)")
        self._folder = Path(tempfile.mkdtemp(prefix="conformance-"))
        self.address = f"unix:{self._folder}/p4runtime.sock"
        command = [SWITCH, "--device-id", str(DEVICE_ID), "--no-p4", "--log-level", "off" if log is None else "trace"]
        command += [] if log is None else ["--log-file", str(log.with_suffix("")), "--log-flush"]
        command += [*thrift(), "--"]
        command += ["--cpu-port", str(CPU_PORT), "--grpc-server-addr", self.address]
        command += ["--dp-grpc-server-addr", f"unix:{self._folder}/dataplane.sock"]
        self._process = subprocess.Popen(
            command, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._request, response, self._status, status_set = _dataplane_messages()
        self._channel = grpc.insecure_channel(f"unix:{self._folder}/dataplane.sock")
        self._stream = self._channel.stream_stream(
            "/p4.bm.DataplaneInterface/PacketStream",
            request_serializer=self._request.SerializeToString,
            response_deserializer=response.FromString,
        )
        self._set_status = self._channel.unary_unary(
            "/p4.bm.DataplaneInterface/SetPortOperStatus",
            request_serializer=self._status.SerializeToString,
            response_deserializer=status_set.FromString,
        )

    def __enter__(self) -> Bmv2Target:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process and takes its files away."""
        self._channel.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)

    def pipeline_set(self) -> None:
        """Without a program the dataplane service says "not ready"."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                list(received(self._stream(iter(()), timeout=LIMIT_S, wait_for_ready=True)))
                return
            except grpc.RpcError as error:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise Bmv2Error(f"simple_switch_grpc did not start: {error}") from error
                time.sleep(0.02)

    def arrive(self, port: int, frame: bytes) -> Outputs:
        if not frame:
            raise ValueError("BMv2's dataplane service ignores empty frames")
        request = self._request(device_id=DEVICE_ID, port=port, packet=frame)
        try:
            return tuple((r.port, r.packet) for r in received(self._stream(iter((request,)), timeout=LIMIT_S)))
        except grpc.RpcError as error:
            raise Bmv2Error(f"BMv2 {self._state()} over the frame {frame.hex()}") from error

    def packet_out(self, send: Callable[[], None]) -> Outputs:
        """A packet-out goes another way, so here only the clock tells that it is through."""
        held: queue.SimpleQueue[None] = queue.SimpleQueue()
        stream = self._stream(iter(held.get, None), timeout=LIMIT_S)
        time.sleep(PACKET_OUT_QUIET_S)
        send()
        time.sleep(PACKET_OUT_QUIET_S)
        held.put(None)
        try:
            return tuple((r.port, r.packet) for r in received(stream))
        except grpc.RpcError as error:
            raise Bmv2Error(f"BMv2 {self._state()} over a packet-out") from error

    def set_port(self, port: int, up: bool) -> None:
        """BMv2 tells its P4Runtime server later: here only the clock tells that it is through."""
        request = self._status(device_id=DEVICE_ID, port=port, oper_status=2 if up else 1)
        try:
            self._set_status(request, timeout=LIMIT_S)
        except grpc.RpcError as error:
            raise Bmv2Error(f"BMv2 {self._state()} over the state of port {port}") from error
        time.sleep(PORT_QUIET_S)

    def punted(self) -> None:
        return None

    def _state(self) -> str:
        """Return the state of the process, which may be ending just now."""
        try:
            status = self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            return f"did not answer within {LIMIT_S} s"
        return f"ended with status {status}"
