"""The names the job service uses against what they name: the compiled P4 program, wire.p4 and jobs.proto."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from p4reduce_contracts import wire
from p4reduce_contracts.artifacts import P4INFO, find, geometry
from p4reduce_contracts.jobs import jobs_pb2
from p4reduce_contracts.jobs.errors import InvalidRequest
from p4reduce_contracts.p4runtime import codec
from p4reduce_contracts.p4runtime.entries import DigestConfig
from p4reduce_contracts.p4runtime.messages import parse_p4info
from p4reduce_contracts.p4runtime.schema import Schema
from p4reduce_controller import forwarding
from p4reduce_controller.config import Config, ForwardingConfig, PortConfig
from p4reduce_controller.jobs import switch_entries, tofino_entries
from p4reduce_controller.jobs.hello import Address
from p4reduce_controller.jobs.model import Grant
from p4reduce_controller.jobs.slots import SlotRange
from p4reduce_controller.p4names import TOFINO, V1MODEL
from rigs.wire_p4 import WIRE_P4

ROOT = Path(__file__).resolve().parents[3]
GRANT = Grant(
    255,
    "train",
    65535,
    SlotRange(1023, 1),
    tuple(Address(509, 2**48 - 1, 2**32 - 1, n) for n in range(32)),
    (2**64 - 1,) * 32,
)


@pytest.fixture(params=["default", "small"])
def schema(request: pytest.FixtureRequest) -> Schema:
    return Schema.from_p4info(parse_p4info((find(request.param) / P4INFO).read_text()))


def test_every_entry_fits_the_program_even_with_the_largest_values(schema: Schema) -> None:
    config = Config(
        ports=(PortConfig(509, "fe:ff:ff:ff:ff:ff"),), forwarding=ForwardingConfig(learn=True, flood=(0, 509))
    )
    macs = forwarding.MacTable(config)
    entries = [
        *switch_entries.switch_address(config.switch),
        *switch_entries.admission(GRANT),
        *switch_entries.members(GRANT, config.switch),
        switch_entries.group(GRANT),
        *(entry for _, entry in macs.opening()),
        *(entry for _, entry in macs.learn([(0x020000000022, 2)])),
        DigestConfig(V1MODEL.mac_learn),
    ]
    for entry in entries:
        codec.encode(schema, entry)
    for counter in (*V1MODEL.job_counters.values(), V1MODEL.drops):
        assert counter in schema.counters, counter


def test_the_tables_hold_what_is_learned(schema: Schema) -> None:
    for table in (V1MODEL.mac_table, V1MODEL.learned):
        assert schema.tables[table].size >= forwarding.MAX_LEARNED


@pytest.mark.parametrize("folder", ["tofino1-4x8", "tofino2-4x16"])
def test_every_name_of_tofino_is_in_the_program(folder: str) -> None:
    program = json.loads((ROOT / "p4src/artifacts" / folder / "front_end.json").read_text())
    blocks = program["controls"].values()
    known = {
        named["name"]
        for block in blocks
        for kind in ("tables", "actions", "instances")
        for named in block[kind].values()
    }
    names = dataclasses.asdict(TOFINO)
    assert {*names.pop("job_counters").values(), *names.values()} <= known


@pytest.mark.parametrize(
    "p4info", sorted(ROOT.glob("p4src/artifacts/tofino*/*.p4info.txtpb")), ids=lambda f: f.parent.name
)
def test_tofinos_p4info_has_every_name_and_puts_its_pipe_before_all_but_actions(p4info: Path) -> None:
    text = p4info.read_text()
    names = dataclasses.asdict(TOFINO)
    actions = {"is_switch", "claims_ip", "claims_mac", "admit_rank", "address_to", "forward", "known"}
    objects = [*names.pop("job_counters").values(), *(names[kind] for kind in names.keys() - actions)]
    for name in (*(names[kind] for kind in actions), *(f"pipe.{name}" for name in objects)):
        assert f'name: "{name}"' in text, name


def tofino_grant(ranks: int, slots: SlotRange) -> Grant:
    addresses = tuple(Address(rank, 0x020000000100 + rank, 0x0A000100 + rank, 40000 + rank) for rank in range(ranks))
    return Grant(7, "job", 9, slots, addresses, tuple(range(1 << 63, (1 << 63) + ranks)))


@pytest.mark.parametrize(
    "p4info", sorted(ROOT.glob("p4src/artifacts/tofino*/*.p4info.txtpb")), ids=lambda f: f.parent.name
)
def test_tofinos_p4info_has_what_its_admission_entries_say(p4info: Path) -> None:
    blocks = re.split(r"(?m)^(?=\w)", p4info.read_text())
    without = "".join(block for block in blocks if not block.startswith("externs"))  # of types that only bf-p4c knows
    schema = Schema.from_p4info(parse_p4info(without))
    for entry in tofino_entries.admission(tofino_grant(2, SlotRange(6, 4)), 1024, 32768):
        codec.encode(schema, dataclasses.replace(entry, table=f"pipe.{entry.table}"))


def test_no_two_ranks_share_tofinos_rank_cells() -> None:
    grants = [tofino_grant(8, slots) for slots in (SlotRange(0, 6), SlotRange(6, 4), SlotRange(10, 2038))]
    used: set[int] = set()
    for grant in grants:
        for entry in tofino_entries.admission(grant, 2048, 32768):
            first = entry.params["first_rank_cell"]
            cells = set(range(first, first + grant.slots.count))
            assert not cells & used and max(cells) < 32768
            used |= cells
    assert len(used) == 32768
    with pytest.raises(InvalidRequest, match="room for 8 ranks a job, and job has 9"):
        tofino_entries.admission(tofino_grant(9, SlotRange(0, 1)), 2048, 32768)


def test_drop_reasons_and_hello_are_those_of_wire_p4() -> None:
    reasons = {number: name for name, number in WIRE_P4.enums["Drop"].items()}
    assert reasons.pop(0) == "NONE"
    assert reasons == wire.DROP_REASONS
    assert WIRE_P4.constants["WIRE_VERSION"] == wire.WIRE_VERSION
    assert WIRE_P4.enums["FrameType"]["HELLO"] == wire.HELLO


@pytest.mark.parametrize(("name", "limit"), [("default", 32), ("small", 8)])
def test_the_compiled_pipelines_have_sizes(name: str, limit: int) -> None:
    assert geometry(find(name)).max_world_size == limit


def test_the_generated_code_is_that_of_jobs_proto(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")
    out = tmp_path / "descriptors"
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'contracts'}",
            f"--descriptor_set_out={out}", "p4reduce_contracts/jobs/jobs.proto",
        ],
        check=True, timeout=60,
    )  # fmt: skip
    compiled = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    checked_in = descriptor_pb2.FileDescriptorProto()
    jobs_pb2.DESCRIPTOR.CopyToProto(checked_in)
    for field in [one for message in compiled.message_type for one in message.field]:
        field.ClearField("json_name")
    for field in [one for message in checked_in.message_type for one in message.field]:
        field.ClearField("json_name")
    assert checked_in == compiled
