"""The P4Runtime messages, loaded around the wheel's own modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from p4reduce_contracts.p4runtime import bytestrings, messages


def test_messages_survive_the_wire() -> None:
    request = messages.WriteRequest(device_id=7)
    request.updates.add(type=messages.Update.INSERT).entity.table_entry.table_id = 3
    assert messages.WriteRequest.FromString(request.SerializeToString()) == request


def test_every_rpc_of_the_service_is_listed() -> None:
    service = messages.WriteRequest.DESCRIPTOR.file.services_by_name["P4Runtime"]
    assert {method.name for method in service.methods} == set(messages.METHODS)
    for method in service.methods:
        known = messages.METHODS[method.name]
        assert (method.input_type.name, method.output_type.name) == (
            known.request.DESCRIPTOR.name,
            known.response.DESCRIPTOR.name,
        )


@pytest.mark.parametrize("text", ["x = 1\n", "serialized_pb = b'no call'\n", "def broken(:\n"])
def test_a_wheel_of_another_shape_is_named(tmp_path: Path, text: str) -> None:
    module = tmp_path / "p4runtime_pb2.py"
    module.write_text(text)
    with pytest.raises(ImportError, match="p4runtime==1.6.0"):
        messages._serialized_descriptor(module)


@pytest.mark.parametrize("call", ["F(name='x', serialized_pb=b'abc')", "pool.Default().AddSerializedFile(b'abc')"])
def test_both_shapes_of_generated_modules_are_read(tmp_path: Path, call: str) -> None:
    module = tmp_path / "p4runtime_pb2.py"
    module.write_text(f"DESCRIPTOR = {call}\n")
    assert messages._serialized_descriptor(module) == b"abc"


def test_text_that_is_no_p4info_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not a P4Info"):
        messages.parse_p4info("pkg_info { nonsense: 1 }")


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
