"""What P4Runtime's pipeline config is on a Tofino, for each of the two servers that there are.

Stratum takes a BfPipelineConfig message. Its fields are those of stratum/hal/lib/barefoot/bf.proto in Stratum's
repository, whose README.pipeline.md says what goes where: the program's name and bfrt.json, and for each profile, a
program loaded into some pipes of the chip, its name, context.json, binary and pipes.

bf_switchd, which has the drivers of the open SDE with p4lang/PI's server, takes four parts, each behind its length as
32 bits, least byte first (_pi_update_device_start in pkgsrc/bf-drivers/src/pi/pi_imp.c of p4lang/open-p4studio): the
program's name, binary, context.json, and a name for BF Runtime, of which there is none here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from p4reduce_controller.config import BF_SWITCHD, STRATUM, TofinoServer
from p4reduce_runtime.p4.config.v1 import p4info_pb2 as p4i
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


def _for_stratum(p4info: p4i.P4Info, folder: Path) -> tuple[p4i.P4Info, bytes]:
    config = BfPipelineConfig(p4_name=_NAME, bfruntime_info=(folder / TOFINO_SCHEMA).read_bytes())
    config.profiles.add(
        profile_name=_PROFILE,
        context=(folder / TOFINO_CONTEXT).read_bytes(),
        binary=(folder / TOFINO_BINARY).read_bytes(),
        pipe_scope=_PIPES,
    )
    return p4info, bytes(config.SerializeToString(deterministic=True))


def _for_bf_switchd(p4info: p4i.P4Info, folder: Path) -> tuple[p4i.P4Info, bytes]:
    context = (folder / TOFINO_CONTEXT).read_bytes()
    parts = (_NAME.encode(), (folder / TOFINO_BINARY).read_bytes(), context, b"")
    return _with_whole_fields(p4info, context), b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def _with_whole_fields(p4info: p4i.P4Info, context: bytes) -> p4i.P4Info:
    """Return P4Info in which a key that is a slice from bit 0 has the width of its field.

    The drivers' PI lays keys out by the widths in P4Info, and pipe_mgr, below it, reads them by those of the fields, in
    context.json. Raises ValueError where that is not the assembler's.
    """
    try:
        widths = {
            (table["name"], key["name"]): key["bit_width_full"]
            for table in json.loads(context)["tables"]
            for key in table.get("match_key_fields", ())
            if key["start_bit"] == 0  # of another slice the value would have to move; only constant entries have such
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(f"its {TOFINO_CONTEXT} is not the assembler's; compile again with `make p4-tofino`") from None
    found = p4i.P4Info()
    found.CopyFrom(p4info)
    for table in found.tables:
        for key in table.match_fields:
            key.bitwidth = widths.get((table.preamble.name, key.name), key.bitwidth)
    return found


PIPELINE_CONFIG: Final[Mapping[TofinoServer, Callable[[p4i.P4Info, Path], tuple[p4i.P4Info, bytes]]]] = {
    STRATUM: _for_stratum,
    BF_SWITCHD: _for_bf_switchd,
}
"""A server -> a function that returns the P4Info and the p4_device_config which it takes, of a program's P4Info and its
pipeline folder. It raises OSError and ValueError for files that are missing or wrong."""
