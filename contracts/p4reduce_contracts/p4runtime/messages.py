"""P4Runtime and P4Info messages, the RPC table, and nothing else.

The PyPI wheel `p4runtime` 1.6.0 holds generated modules that do not import on protobuf 4 and later (they were made
for an older runtime). The file descriptors inside them are fine, so this module reads those out of the installed
files without importing them, registers them, and makes the message classes from them. It is the one module
that client and server import for messages.

Messages are made at run time, so they are typed `Any`. finsy registers other builds of the same files: the two cannot
share a process.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, text_format
from google.rpc import status_pb2

_FILES = {  # file inside the wheel's package `p4`, in dependency order -> the proto file it describes
    "config/v1/p4types_pb2.py": "p4/config/v1/p4types.proto",
    "config/v1/p4info_pb2.py": "p4/config/v1/p4info.proto",
    "v1/p4data_pb2.py": "p4/v1/p4data.proto",
    "v1/p4runtime_pb2.py": "p4/v1/p4runtime.proto",
}
_HINT = "install the wheel this was written for: pip install 'p4runtime==1.6.0'"


def _serialized_descriptor(path: Path) -> bytes:
    """The descriptor bytes in one generated module; ImportError when there are none."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError) as error:
        raise ImportError(f"cannot read {path} of the wheel p4runtime ({error}); {_HINT}") from error
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        candidates = [word.value for word in node.keywords if word.arg == "serialized_pb"]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "AddSerializedFile":
            candidates += node.args[:1]
        for value in candidates:
            if isinstance(value, ast.Constant) and isinstance(value.value, bytes):
                return value.value
    raise ImportError(f"{path} of the wheel p4runtime holds no file descriptor; {_HINT}")


def _register() -> Any:
    """Adds the four files to protobuf's default pool and returns the pool."""
    spec = importlib.util.find_spec("p4")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders:
        raise ImportError(f"the package p4runtime is missing; {_HINT}")
    pool: Any = descriptor_pool.Default()
    for relative, proto in _FILES.items():
        path = Path(folders[0]) / relative
        serialized = _serialized_descriptor(path)
        found = descriptor_pb2.FileDescriptorProto.FromString(serialized).name
        if found != proto:
            raise ImportError(f"{path} describes {found}, not {proto}; {_HINT}")
        try:
            pool.AddSerializedFile(serialized)
        except TypeError as error:
            raise ImportError(
                f"another package of this process has registered a different {proto} ({error}); "
                "run it in a process of its own"
            ) from error
    return pool


_pool = _register()


def _message(name: str) -> Any:
    try:
        return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))
    except KeyError as error:
        raise ImportError(f"the wheel p4runtime has no message {name}; {_HINT}") from error


Any_: Any = any_pb2.Any
Status: Any = status_pb2.Status

P4Info: Any = _message("p4.config.v1.P4Info")
MatchField: Any = _message("p4.config.v1.MatchField")
CounterSpec: Any = _message("p4.config.v1.CounterSpec")
MeterSpec: Any = _message("p4.config.v1.MeterSpec")

WriteRequest: Any = _message("p4.v1.WriteRequest")
WriteResponse: Any = _message("p4.v1.WriteResponse")
ReadRequest: Any = _message("p4.v1.ReadRequest")
ReadResponse: Any = _message("p4.v1.ReadResponse")
Update: Any = _message("p4.v1.Update")
Entity: Any = _message("p4.v1.Entity")
TableEntry: Any = _message("p4.v1.TableEntry")
FieldMatch: Any = _message("p4.v1.FieldMatch")
Action: Any = _message("p4.v1.Action")
CounterEntry: Any = _message("p4.v1.CounterEntry")
DirectCounterEntry: Any = _message("p4.v1.DirectCounterEntry")
CounterData: Any = _message("p4.v1.CounterData")
MulticastGroupEntry: Any = _message("p4.v1.MulticastGroupEntry")
CloneSessionEntry: Any = _message("p4.v1.CloneSessionEntry")
Replica: Any = _message("p4.v1.Replica")
DigestEntry: Any = _message("p4.v1.DigestEntry")
DigestList: Any = _message("p4.v1.DigestList")
DigestListAck: Any = _message("p4.v1.DigestListAck")
P4Data: Any = _message("p4.v1.P4Data")
PacketIn: Any = _message("p4.v1.PacketIn")
PacketOut: Any = _message("p4.v1.PacketOut")
PacketMetadata: Any = _message("p4.v1.PacketMetadata")
MasterArbitrationUpdate: Any = _message("p4.v1.MasterArbitrationUpdate")
StreamMessageRequest: Any = _message("p4.v1.StreamMessageRequest")
StreamMessageResponse: Any = _message("p4.v1.StreamMessageResponse")
StreamError: Any = _message("p4.v1.StreamError")
Uint128: Any = _message("p4.v1.Uint128")
Error: Any = _message("p4.v1.Error")
ForwardingPipelineConfig: Any = _message("p4.v1.ForwardingPipelineConfig")
SetForwardingPipelineConfigRequest: Any = _message("p4.v1.SetForwardingPipelineConfigRequest")
SetForwardingPipelineConfigResponse: Any = _message("p4.v1.SetForwardingPipelineConfigResponse")
GetForwardingPipelineConfigRequest: Any = _message("p4.v1.GetForwardingPipelineConfigRequest")
GetForwardingPipelineConfigResponse: Any = _message("p4.v1.GetForwardingPipelineConfigResponse")
CapabilitiesRequest: Any = _message("p4.v1.CapabilitiesRequest")
CapabilitiesResponse: Any = _message("p4.v1.CapabilitiesResponse")

SERVICE = "p4.v1.P4Runtime"


@dataclass(frozen=True)
class Method:
    """One RPC: which grpc shape it has (for example "unary_stream") and its two messages."""

    shape: str
    request: Any
    response: Any


METHODS: Mapping[str, Method] = {
    "Write": Method("unary_unary", WriteRequest, WriteResponse),
    "Read": Method("unary_stream", ReadRequest, ReadResponse),
    "SetForwardingPipelineConfig": Method(
        "unary_unary", SetForwardingPipelineConfigRequest, SetForwardingPipelineConfigResponse
    ),
    "GetForwardingPipelineConfig": Method(
        "unary_unary", GetForwardingPipelineConfigRequest, GetForwardingPipelineConfigResponse
    ),
    "StreamChannel": Method("stream_stream", StreamMessageRequest, StreamMessageResponse),
    "Capabilities": Method("unary_unary", CapabilitiesRequest, CapabilitiesResponse),
}


def callables(channel: Any) -> dict[str, Any]:
    """RPC name -> grpc multi-callable on `channel`."""
    return {
        name: getattr(channel, method.shape)(
            f"/{SERVICE}/{name}",
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        for name, method in METHODS.items()
    }


def parse_p4info(text: str) -> Any:
    """P4Info from its text form (`*.p4info.txtpb`); ValueError when it is not P4Info."""
    try:
        text.encode()  # half a surrogate pair is text to Python, and a SystemError to protobuf
        return text_format.Parse(text, P4Info())
    except (UnicodeEncodeError, text_format.ParseError) as error:
        raise ValueError(f"not a P4Info in text form: {error}") from error
