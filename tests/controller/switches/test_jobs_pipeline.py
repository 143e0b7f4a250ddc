"""A pipeline's P4Info says which target it is for; the names the job service uses against the compiled programs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from p4reduce_controller.config import BF_SWITCHD, Config, ForwardingConfig, PortConfig
from p4reduce_controller.registry.hello import Address
from p4reduce_controller.registry.job import Child, Grant, Parent
from p4reduce_controller.registry.slots import SlotRange
from p4reduce_controller.switches import mac_table
from p4reduce_controller.switches import pipeline as pipelines
from p4reduce_controller.switches.entries import tofino, v1model
from p4reduce_controller.switches.pipeline import Pipeline
from p4reduce_controller.switches.program_names import TOFINO, V1MODEL
from p4reduce_runtime.p4runtime import codec
from p4reduce_runtime.p4runtime.entries import DigestConfig, Entry, MeterEntry
from p4reduce_runtime.p4runtime.schema import Schema
from p4reduce_runtime.pipeline_folders import GEOMETRY, P4INFO, PROGRAM, PipelineNotFoundError, find
from rigs.tna_switch import ARTIFACTS, CHIPS, pipeline_folder


@pytest.mark.parametrize("name", ["default", "small"])
def test_bmv2_and_the_embedded_switch_load_json(name: str) -> None:
    pipeline = pipelines.read(find(name))
    assert pipeline.names is V1MODEL
    assert pipeline.device_config == (find(name) / PROGRAM).read_bytes()
    assert pipeline.max_children == 32


@pytest.mark.parametrize(("chip", "by_frame", "by_registers"), [("tofino1-4x8", 8, 32), ("tofino2-4x16", 16, 8)])
def test_a_tofinos_registers_limit_the_number_of_ranks(
    tmp_path: Path, chip: str, by_frame: int, by_registers: int
) -> None:
    pipeline = pipelines.read(find(pipeline_folder(tmp_path / "pipeline", chip)))
    assert pipeline.names is TOFINO
    assert pipeline.geometry.max_world_size == by_frame
    assert pipeline.max_children == by_registers


def test_a_tofinos_pipeline_is_stratums_message(tmp_path: Path) -> None:
    """Byte for byte: protobuf's fields 1 to 3, the third with fields 1 to 4."""
    folder = pipeline_folder(tmp_path / "pipeline", "tofino1-4x8")
    (folder / "bfrt.json").write_bytes(b"{}")
    (folder / "context.json").write_bytes(b"[0]")
    (folder / "tofino.bin").write_bytes(b"\xff\x00")
    profile = b"\x0a\x04pipe" + b"\x12\x03[0]" + b"\x1a\x02\xff\x00" + b"\x22\x04\x00\x01\x02\x03"
    wanted = b"\x0a\x08p4reduce" + b"\x12\x02{}" + b"\x1a" + bytes((len(profile),)) + profile
    assert pipelines.read(folder).device_config == wanted


def test_bf_switchd_takes_a_tofinos_files_behind_their_lengths(tmp_path: Path) -> None:
    folder = pipeline_folder(tmp_path / "pipeline", "tofino1-4x8")
    keys = [
        {"name": "version", "start_bit": 0, "bit_width_full": 32},
        {"name": "job", "start_bit": 4, "bit_width_full": 9},
    ]
    context = json.dumps({"tables": [{"name": TOFINO.admit, "match_key_fields": keys}, {"name": "other"}]}).encode()
    (folder / "context.json").write_bytes(context)
    (folder / "tofino.bin").write_bytes(bytes(range(256)) + b"\0")
    length = len(context).to_bytes(4, "little")
    wanted = b"\x08\0\0\0p4reduce" + b"\x01\x01\0\0" + bytes(range(256)) + b"\0" + length + context + bytes(4)
    pipeline = pipelines.read(folder, BF_SWITCHD)
    assert pipeline.device_config == wanted
    (admit,) = (table for table in pipeline.p4info.tables if table.preamble.name == TOFINO.admit)
    assert {key.name: key.bitwidth for key in admit.match_fields if key.name in ("version", "job")} == {
        "version": 32,
        "job": 8,
    }


@pytest.mark.parametrize(
    "context", [b"{}", b"[]", b'{"tables": [{"name": "t", "match_key_fields": [{}]}]}', b"not JSON"]
)
def test_a_context_that_is_not_the_assembler_s_is_refused(tmp_path: Path, context: bytes) -> None:
    folder = pipeline_folder(tmp_path / "pipeline", "tofino1-4x8")
    (folder / "context.json").write_bytes(context)
    with pytest.raises(PipelineNotFoundError, match=r"context\.json is not the assembler's; .*make p4-tofino"):
        pipelines.read(folder, BF_SWITCHD)


@pytest.mark.parametrize("chip", CHIPS)
def test_the_artifacts_of_a_tofino_lack_the_binary(chip: str) -> None:
    with pytest.raises(
        PipelineNotFoundError, match=r"lacks .*tofino\.bin; .*`make p4-tofino`, which writes .* out/tofino"
    ):
        find(ARTIFACTS / chip)


@pytest.mark.parametrize("file", ["context.json", "bfrt.json", "tofino.bin"])
def test_a_file_that_a_tofino_lacks_is_named(tmp_path: Path, file: str) -> None:
    folder = pipeline_folder(tmp_path / "pipeline", "tofino1-4x8")
    (folder / file).unlink()
    with pytest.raises(PipelineNotFoundError, match=f"cannot use the pipeline in .*{file}"):
        pipelines.read(folder)


OTHER_TARGET = "architecture '{}', .*v1model, tna and t2na; .*`make p4-tofino`"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (P4INFO, 'pkg_info { arch: "psa" }', OTHER_TARGET.format("psa")),
        (P4INFO, 'pkg_info { arch: "" }', OTHER_TARGET.format("")),
        (P4INFO, 'pkg_info { arch: "tna" }', "no register .*rank_tags.* --p4runtime-force-std-externs"),
        (GEOMETRY, "columns = 4\nblock_words = 8\nslots = 2048\n", "has 1024 slots, and its sizes say 2048"),
    ],
)
def test_what_is_not_of_the_program_or_its_target_is_refused(
    tmp_path: Path, file: str, text: str, message: str
) -> None:
    folder = pipeline_folder(tmp_path / "pipeline", "tofino1-4x8")
    (folder / file).write_text(text)
    with pytest.raises(PipelineNotFoundError, match=message):
        pipelines.read(folder)


PARENT = Parent("root", Address(509, 2**48 - 1, 2**32 - 1, 65535), 2**64 - 1)


def read(name: str, folder: Path) -> Pipeline:
    """Read a pipeline that is checked in; `folder` is for a Tofino's files."""
    return pipelines.read(pipeline_folder(folder / "pipeline", name) if name in CHIPS else find(name))


def largest_grant(pipeline: Pipeline) -> Grant:
    """Return a grant of the largest numbers for the most ranks; of v1model's program it has a parent."""
    places = [Address(509, 2**48 - 1, 2**32 - 1, rank) for rank in range(pipeline.max_children)]
    children = tuple(Child(place, 2**64 - 1, (rank,)) for rank, place in enumerate(places))
    return Grant(255, "train", 65535, SlotRange(1023, 1), children, PARENT if pipeline.names is V1MODEL else None)


@pytest.fixture(params=["default", "small", *CHIPS])
def compiled(request: pytest.FixtureRequest, tmp_path: Path) -> Pipeline:
    return read(request.param, tmp_path)


@pytest.fixture
def schema(compiled: Pipeline) -> Schema:
    return Schema.from_p4info(compiled.p4info)


def test_every_entry_fits_the_program_even_with_the_largest_values(compiled: Pipeline, schema: Schema) -> None:
    config = Config(
        ports=(PortConfig(509, "fe:ff:ff:ff:ff:ff"),), forwarding=ForwardingConfig(learn=True, flood=(0, 509))
    )
    names, of_job = compiled.names, compiled.entries(largest_grant(compiled), config.switches[0])
    macs = mac_table.MacTable(config, config.switches[0], names)
    entries: list[Entry] = [
        *v1model.switch_address(config.switches[0], names),
        *of_job.admission,
        *of_job.replies,
        *macs.opening(),
        *(entry for _, entry in macs.learn([(0x020000000022, 2)])),
        DigestConfig(names.mac_learn),
        MeterEntry(names.hello_rate, 511),
    ]
    for entry in entries:
        codec.encode(schema, entry)
    for counter in (*names.job_counters.values(), names.drops):
        assert counter in schema.counters, counter


def test_the_mac_tables_have_room_for_all_learned_addresses(compiled: Pipeline, schema: Schema) -> None:
    for table in (compiled.names.mac_table, compiled.names.learned):
        assert schema.tables[table].size >= mac_table.MAX_LEARNED


def test_frames_to_and_from_the_controller_name_their_port(schema: Schema) -> None:
    for header, port in ((schema.packet_in, "ingress_port"), (schema.packet_out, "egress_port")):
        assert {field.name: field.bitwidth for field in header} == {"_pad": 7, port: 9}


@pytest.mark.parametrize("chip", CHIPS)
def test_every_name_of_tofino_is_in_the_program_that_is_executed(chip: str) -> None:
    blocks = json.loads((ARTIFACTS / chip / "front_end.json").read_text())["controls"].values()
    known = {
        named["name"]
        for block in blocks
        for kind in ("tables", "actions", "instances")
        for named in block[kind].values()
    }
    names = dataclasses.asdict(TOFINO)
    assert {*names.pop("job_counters").values(), *filter(None, names.values())} <= known


@pytest.mark.parametrize("chip", CHIPS)
def test_stratum_accepts_tofinos_p4info(tmp_path: Path, chip: str) -> None:
    """As its source says: no name or id twice, digests of structs. And it finds counters, meters and digests in
    bfrt.json, which has other ids, by the first name that has theirs in it."""
    p4info = read(chip, tmp_path).p4info
    kinds = ("tables", "actions", "counters", "meters", "digests", "registers")
    preambles = [each.preamble for kind in kinds for each in getattr(p4info, kind)]
    for values in ([preamble.name for preamble in preambles], [preamble.id for preamble in preambles]):
        assert len(set(values)) == len(values)
    assert all(digest.type_spec.WhichOneof("type_spec") == "struct" for digest in p4info.digests)
    for name in (*TOFINO.job_counters.values(), TOFINO.drops, TOFINO.hello_rate, TOFINO.mac_learn):
        assert [preamble.name for preamble in preambles if name in preamble.name] == [name]


def tofino_grant(ranks: int, slots: SlotRange) -> Grant:
    places = [Address(rank, 0x020000000100 + rank, 0x0A000100 + rank, 40000 + rank) for rank in range(ranks)]
    children = tuple(Child(place, (1 << 63) + rank, (rank,)) for rank, place in enumerate(places))
    return Grant(7, "job", 9, slots, children)


def test_no_two_ranks_share_tofinos_rank_cells() -> None:
    registers = tofino.Registers(slots=2048, rank_cells=32768)
    assert registers.max_children == 8
    grants = [tofino_grant(8, slots) for slots in (SlotRange(0, 6), SlotRange(6, 4), SlotRange(10, 2038))]
    used: set[int] = set()
    for grant in grants:
        for entry in tofino.admission(grant, TOFINO, registers):
            first = entry.params["first_rank_cell"]
            cells = set(range(first, first + grant.slots.count))
            assert not cells & used and max(cells) < 32768
            used |= cells
    assert len(used) == 32768
