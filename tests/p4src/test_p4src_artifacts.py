"""What is checked in of both programs is what their sources give, and the TNA program fits its chip.

The worker's wire constants are the P4 header's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from p4reduce_runtime.underlay import ENCAP_BYTES
from rigs import wire
from rigs.p4src import P4SRC, WIRE_P4, load

build_tofino = load("build_tofino")
build = build_tofino.build
manifest = json.loads((P4SRC / "artifacts" / build_tofino.MANIFEST).read_text())
INCLUDE = os.environ.get(build_tofino.INCLUDE, "")

needs_headers = pytest.mark.skipif(
    shutil.which("p4c-bm2-ss") is None or not (Path(INCLUDE) / "tna.p4").is_file(),
    reason=f"p4c-bm2-ss is not on PATH, or {build_tofino.INCLUDE} names no folder with tna.p4",
)


def test_the_sources_are_the_ones_read() -> None:
    assert build.sources(build_tofino.SOURCES) == manifest["sources"], "p4src/tna changed: run `make p4-tofino`"


def test_the_artifacts_are_the_ones_written() -> None:
    artifacts = {name: build.digest(P4SRC / name) for name in manifest["artifacts"]}
    assert artifacts == manifest["artifacts"], "an artifact was edited by hand: run `make p4-tofino`"


def registers_of(chip: str) -> dict[str, int]:
    """Return the sizes of the registers of a chip's program, by name."""
    program = json.loads((P4SRC / "artifacts" / chip / build_tofino.PROGRAM).read_text())
    instances = program["controls"]["MainIngress"]["instances"].values()
    return {i["name"]: i["arguments"][0][1] for i in instances if i["extern"] == "Register"}


@pytest.mark.parametrize("name", sorted(build_tofino.CHIPS))
def test_the_program_has_a_register_a_word(name: str) -> None:
    shape, registers = build.GEOMETRIES[name], registers_of(name)
    sums = [name for name in registers if ".sums_" in name]
    assert len(sums) == shape["columns"] * shape["block_words"]
    others = {"tags.tags", "tags.tags_again", "tags.rank_tags", "slot_state.seen", "slot_state.held"}
    others |= {"check_word.checks", *(f"column_key_{column}.keys" for column in range(shape["columns"]))}
    assert {name.removeprefix("MainIngress.") for name in registers.keys() - set(sums)} == others
    assert {name for name, size in registers.items() if size != 2 * shape["slots"]} == {"MainIngress.tags.rank_tags"}


@pytest.mark.tofino
@needs_headers
@pytest.mark.parametrize("name", sorted(build_tofino.CHIPS))
def test_reading_again_gives_the_same(name: str) -> None:
    if build.compiler_version() not in manifest["front_end"]:
        pytest.skip(f"another p4c than {manifest['front_end']}")
    found = build_tofino.read_program(name, INCLUDE)
    assert found == json.loads((P4SRC / "artifacts" / name / build_tofino.PROGRAM).read_text())


@pytest.mark.tofino
@needs_headers
def test_a_program_that_is_wrong_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(P4SRC, tmp_path / "p4src")
    monkeypatch.setattr(build_tofino, "P4SRC", tmp_path / "p4src")
    with (tmp_path / "p4src/tna/reply.p4").open("a") as source:
        source.write("control Wrong() { apply { nothing_of_this_name(); } }\n")
    with pytest.raises(subprocess.CalledProcessError):
        build_tofino.read_program("tofino1-4x8", INCLUDE)


# ---- the report: what the Tofino compiler and its assembler make of it fits, and nothing was lost or made twice

tofino_report = build_tofino.tofino_report
STAGES = {1: 12, 2: 20}
PER_STAGE = {
    "meter_alus": 4,
    "statistics_alus": 4,
    "sram": 80,
    "map_ram": 48,
    "tcam": 24,
    "gateways": 16,
    "logical_tables": 16,
}
PARSER_ROWS = 256

ASSEMBLY = """\
version:
  target: Tofino
phv ingress:
  base.round: { stage 0..11: W3 }
  base.job: B7
  ethernet.dst_mac.0-15: TH1  # tagalong
stage 3 ingress:
  stateful slots.tags$0:
    p4: { name: Ingress.slots.tags, size: 2048 }
  stateful slots.seen$0:
    p4: { name: Ingress.slots.seen, size: 2048 }
stage 4 ingress:
  stateful slots.tags$1:
    p4: { name: Ingress.slots.tags, size: 2048 }
stage 5 ingress:
  dependency: action
deparser ingress:
  dictionary: {}
"""


def test_a_register_in_two_stages_is_detected() -> None:
    assert tofino_report.register_stages(ASSEMBLY) == {"Ingress.slots.tags": [3, 4], "Ingress.slots.seen": [3]}
    assert tofino_report.stages_used(ASSEMBLY, "ingress") == 5
    assert tofino_report.stages_used(ASSEMBLY, "egress") == 0


def test_containers_are_counted_by_kind() -> None:
    assert tofino_report.containers(ASSEMBLY) == {"B": 1, "TH": 1, "W": 1}


@pytest.mark.parametrize("name", sorted(build_tofino.CHIPS))
def test_the_program_fits(name: str) -> None:
    """The report that is checked in: of these sources, each register in one stage, nothing beyond what a stage has."""
    report = json.loads((P4SRC / "artifacts" / name / build_tofino.REPORT).read_text())
    assert report["sources"] == build_tofino.sources_digest(), (
        "p4src/tna changed: run `make p4-tofino` with its compiler"
    )
    assert report["registers"].keys() == registers_of(name).keys()
    assert {register: stages for register, stages in report["registers"].items() if len(stages) != 1} == {}
    assert max(report["stages"].values()) <= STAGES[build_tofino.CHIPS[name]]
    for stage in report["by_stage"]:
        assert {unit: used for unit, used in stage.items() if unit in PER_STAGE and used > PER_STAGE[unit]} == {}
    assert max(report["parser_rows"].values()) <= PARSER_ROWS


@pytest.mark.tofino
@pytest.mark.slow
@pytest.mark.skipif(
    not build_tofino.backend_is_here() or not (Path(INCLUDE) / "tna.p4").is_file(),
    reason=f"p4c-barefoot or bfas is not on PATH, or {build_tofino.INCLUDE} names no folder with tna.p4",
)
@pytest.mark.parametrize("name", sorted(build_tofino.CHIPS))
def test_compiling_again_gives_the_same_report(name: str, tmp_path: Path) -> None:
    build_tofino.compile_chip(name, INCLUDE, tmp_path)
    for file in (build_tofino.REPORT, build_tofino.P4INFO):
        assert (tmp_path / file).read_bytes() == (P4SRC / "artifacts" / name / file).read_bytes(), file


v1model_manifest = json.loads((P4SRC / "artifacts/manifest.json").read_text())


def test_the_v1model_sources_are_the_ones_compiled() -> None:
    assert build.sources() == v1model_manifest["sources"], "p4src changed: run `make p4` where p4c is installed"


def test_the_artifacts_are_the_ones_listed() -> None:
    artifacts = {
        str(file.relative_to(P4SRC)): build.digest(file)
        for name in build.GEOMETRIES
        for file in (P4SRC / "artifacts" / build.TARGET / name).iterdir()
    }
    assert artifacts == v1model_manifest["artifacts"], "an artifact was edited by hand: run `make p4`"


@pytest.mark.parametrize("name", sorted(build.GEOMETRIES))
def test_the_program_has_the_geometry_its_folder_states(name: str) -> None:
    folder = P4SRC / "artifacts" / build.TARGET / name
    shape = tomllib.loads((folder / "geometry.toml").read_text())
    program = json.loads((folder / "p4reduce.json").read_text())
    registers = {register["name"]: register for register in program["register_arrays"]}
    sums = [register for name, register in registers.items() if ".sums_" in name]
    assert sum(register["bitwidth"] for register in sums) == 32 * shape["block_words"] * shape["columns"]
    assert {register["size"] for register in registers.values()} == {2 * shape["slots"]}


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
@pytest.mark.parametrize("name", sorted(build.GEOMETRIES))
def test_compiling_v1model_again_gives_the_same_artifacts(name: str, tmp_path: Path) -> None:
    if build.compiler_version() not in v1model_manifest["compiler"]:
        pytest.skip(f"another p4c than {v1model_manifest['compiler']}")
    build.compile_geometry(name, tmp_path)
    for file in tmp_path.iterdir():
        assert file.read_bytes() == (P4SRC / "artifacts" / build.TARGET / name / file.name).read_bytes(), file.name


CONSTANTS = WIRE_P4.constants


@pytest.mark.parametrize(
    "name", ["AGGREGATION_PORT", "WIRE_VERSION", "KEY_NONE", "BASE_BYTES", "GUARD_BYTES", "NONCE_BYTES"]
)
def test_constant(name: str) -> None:
    assert getattr(wire, name) == CONSTANTS[name]


def test_frame_types_have_their_names() -> None:
    assert {number: name for name, number in WIRE_P4.enums["FrameType"].items()} == wire.TYPE_NAMES


def test_header_bytes_on_the_wire() -> None:
    assert CONSTANTS["ETHERNET_BYTES"] + CONSTANTS["IPV4_BYTES"] + CONSTANTS["UDP_BYTES"] == ENCAP_BYTES


@pytest.mark.parametrize(("name", "geometry"), [("default", wire.DEFAULT), ("small", wire.SMALL)])
def test_geometry(name: str, geometry: wire.Geometry) -> None:
    shape = tomllib.loads((P4SRC / "artifacts" / "v1model" / name / "geometry.toml").read_text())
    assert (geometry.columns, geometry.block_words) == (shape["columns"], shape["block_words"])


def test_header_layout() -> None:
    """Each field of a packed frame lies where the P4 headers put it."""
    base, guard = WIRE_P4.fields("base_t"), WIRE_P4.fields("guard_t")
    assert sum(bits for _, bits in base) == 8 * CONSTANTS["BASE_BYTES"]
    assert sum(bits for _, bits in guard) == 8 * CONSTANTS["GUARD_BYTES"]
    fields = [*base, *(("unused" if name == "reserved" else name, bits) for name, bits in guard)]
    values = {
        "version": CONSTANTS["WIRE_VERSION"], "type": wire.CONTRIBUTE, "job": 0xA1, "present": 0b0110,
        "level": 0, "epoch": 0xB2B3, "slot": 0xC4C5, "round": 0xD6D7D8D9, "seen": 0,
        "secret": 0x1112131415161718, "check": 0x21222324, "unused": 0,
    }  # fmt: skip
    keys = (0x01020304, 0x05060708, 0x090A0B0C, 0x0D0E0F10)
    blocks = bytes(range(64))
    named = ("type", "job", "present", "epoch", "slot", "round", "seen", "secret", "check")
    frame = wire.Frame(**{name: values[name] for name in named}, keys=keys, blocks=blocks)
    packed = wire.pack(wire.SMALL, frame)
    values["checksum"] = wire.header_checksum(wire.SMALL, packed)
    number = 0
    for name, bits in fields:
        number = number << bits | values[name]
    assert packed == number.to_bytes(32, "big") + b"".join(key.to_bytes(4, "big") for key in keys) + blocks


def test_drop_reasons_have_the_names_the_controller_prints() -> None:
    reasons = {number: name for name, number in WIRE_P4.enums["Drop"].items()}
    assert reasons.pop(0) == "NONE"
    assert reasons == wire.DROP_REASONS
    assert CONSTANTS["DROP_REASONS"] == len(reasons) + 1
