"""What Stratum on a Tofino loads: a BfPipelineConfig message, in P4Runtime's p4_device_config.

Its fields are those of stratum/hal/lib/barefoot/bf.proto in Stratum's repository, whose README.pipeline.md says what
goes where: the program's name and bfrt.json, and for each profile, a program loaded into some pipes of the chip, its
name, context.json, binary and pipes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from p4reduce_runtime.pipeline_folders import TOFINO_BINARY, TOFINO_CONTEXT, TOFINO_SCHEMA

_NAME = "p4reduce"
_PROFILE = "pipe"
"""The compiler's name of the one pipeline of our program, in bfrt.json too."""
_PIPES = (0, 1, 2, 3)
"""The numbers of all pipes: a chip with two takes a program for four as well."""

_Field = descriptor_pb2.FieldDescriptorProto


def _messages() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="bf.proto", package="stratum.hal.barefoot", syntax="proto3")
    config = file.message_type.add(name="BfPipelineConfig")
    profile = config.nested_type.add(name="Profile")
    once, many = _Field.LABEL_OPTIONAL, _Field.LABEL_REPEATED
    profile.field.add(name="profile_name", number=1, type=_Field.TYPE_STRING, label=once)
    profile.field.add(name="context", number=2, type=_Field.TYPE_BYTES, label=once)
    profile.field.add(name="binary", number=3, type=_Field.TYPE_BYTES, label=once)
    profile.field.add(name="pipe_scope", number=4, type=_Field.TYPE_UINT32, label=many)
    config.field.add(name="p4_name", number=1, type=_Field.TYPE_STRING, label=once)
    config.field.add(name="bfruntime_info", number=2, type=_Field.TYPE_BYTES, label=once)
    of_profile = f".{file.package}.{config.name}.{profile.name}"
    config.field.add(name="profiles", number=3, type=_Field.TYPE_MESSAGE, type_name=of_profile, label=many)
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{config.name}"))


BfPipelineConfig: Any = _messages()


def device_config(folder: Path) -> bytes:
    """Return the p4_device_config of the pipeline in `folder`. Raises OSError where a file of it is missing."""
    config = BfPipelineConfig(p4_name=_NAME, bfruntime_info=(folder / TOFINO_SCHEMA).read_bytes())
    config.profiles.add(
        profile_name=_PROFILE,
        context=(folder / TOFINO_CONTEXT).read_bytes(),
        binary=(folder / TOFINO_BINARY).read_bytes(),
        pipe_scope=_PIPES,
    )
    return bytes(config.SerializeToString(deterministic=True))
