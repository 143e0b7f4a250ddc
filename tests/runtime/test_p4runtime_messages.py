"""The P4Runtime and P4Info messages: what is checked in, and what it is made from."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from p4reduce_contracts.jobs import jobs_pb2
from p4reduce_runtime.p4.config.v1 import p4info_pb2, p4types_pb2
from p4reduce_runtime.p4.v1 import p4data_pb2
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import bytestrings
from p4reduce_runtime.p4runtime.schema import parse_p4info
from p4reduce_switch.queues import queues_pb2

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("root", "module"),
    [
        ("contracts", jobs_pb2),
        ("softswitch", queues_pb2),
        ("runtime/p4reduce_runtime", p4types_pb2),
        ("runtime/p4reduce_runtime", p4info_pb2),
        ("runtime/p4reduce_runtime", p4data_pb2),
        ("runtime/p4reduce_runtime", p4r),
    ],
    ids=lambda value: getattr(value, "__name__", "").rpartition(".")[2],
)
def test_the_generated_code_is_that_of_the_proto_file(root: str, module: object, tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    google = next(str(Path(path).parents[1]) for path in __import__("google.rpc").rpc.__path__)
    out = tmp_path / "descriptors"
    name = module.DESCRIPTOR.name  # type: ignore[attr-defined]
    own = Path(protoc.__file__).parent / "_proto"  # protobuf's own files
    folders = [f"-I{folder}" for folder in (ROOT / root, google, own)]
    assert protoc.main(["protoc", *folders, f"--descriptor_set_out={out}", name]) == 0
    compiled = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    checked_in = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(checked_in)  # type: ignore[attr-defined]
    for message in [*compiled.message_type, *checked_in.message_type]:
        _clear_json_names(message)
    assert checked_in == compiled


def _clear_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _clear_json_names(nested)


def test_text_that_is_no_p4info_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not a P4Info"):
        parse_p4info("pkg_info { nonsense: 1 }")


@pytest.mark.parametrize(
    ("value", "bitwidth", "data"), [(0, 9, b"\0"), (255, 9, b"\xff"), (256, 9, b"\1\0"), (1, 48, b"\1")]
)
def test_byte_strings_are_as_short_as_possible(value: int, bitwidth: int, data: bytes) -> None:
    assert bytestrings.encode(value, bitwidth) == data
    assert bytestrings.decode(b"\0\0" + data) == value


@pytest.mark.parametrize("value", [512, -1])
def test_values_that_do_not_fit_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit 9 bits"):
        bytestrings.encode(value, 9)
