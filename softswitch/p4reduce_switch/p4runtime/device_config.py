"""What a p4_device_config holds: the JSON of p4c-bm2-ss, by itself or in a message of type p4.tmp.P4DeviceConfig.

PI, the P4Runtime server of BMv2, took the message before P4Runtime 1.0 and takes it still; older clients send it. Its
fields are those of proto/p4/tmp/p4config.proto in PI's repository: `reassign` (1), `extras` (2) and `device_data` (3).
BMv2 makes use of `device_data` alone, and so does this switch.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from p4reduce_switch.p4runtime.status import invalid

_Field = descriptor_pb2.FieldDescriptorProto
_FIRST_BYTES = (1 << 3 | 0, 2 << 3 | 2, 3 << 3 | 2)
"""Tags of the three fields, one of which a message begins with: no JSON text begins with any of these bytes."""


def _message() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="p4/tmp/p4config.proto", package="p4.tmp", syntax="proto3")
    config = file.message_type.add(name="P4DeviceConfig")
    config.field.add(name="device_data", number=3, type=_Field.TYPE_BYTES, label=_Field.LABEL_OPTIONAL)
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p4.tmp.P4DeviceConfig"))


_P4DeviceConfig: Any = _message()


def program_of(device_config: bytes) -> bytes:
    """Return the JSON in a p4_device_config; INVALID_ARGUMENT where it begins as a P4DeviceConfig and is none."""
    if not device_config or device_config[0] not in _FIRST_BYTES:
        return device_config
    try:
        return bytes(_P4DeviceConfig.FromString(device_config).device_data)
    except DecodeError:
        invalid("p4_device_config is neither the JSON of p4c-bm2-ss nor a P4DeviceConfig message that holds it")
