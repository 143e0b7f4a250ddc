"""What the Tofino compiler and its assembler make of p4src/tna: it fits, and nothing was lost or made twice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rigs.p4src import P4SRC, load

build_tofino = load("build_tofino")
tofino_report = build_tofino.tofino_report
INCLUDE = os.environ.get(build_tofino.INCLUDE, "")
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
parser ingress:
  start: ethernet
  states:
    ethernet:
      match: [ half ]
      0x0806:
        next: arp
      *:
        next: ip
    ip:
      match: [ byte0, byte1 ]
      0x45**:
        next: udp
      0b11:
        next: end
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


def a_program(cases: list[Any]) -> dict[str, Any]:
    """A parser that selects on (8 bits, 8 bits) and, in another state, on 16 bits."""
    fields = [["field", ["name", "ip"], "version"], ["field", ["name", "ip"], "protocol"]]
    ethertype = {"select": [["field", ["name", "ip"], "id"]], "cases": [[["const", 0x0806], "arp"], [["any"], "ip"]]}
    return {
        "types": {"ip_t": {"fields": {"version": 8, "protocol": 8, "id": 16}}},
        "parsers": {
            "P": {
                "parameters": {"ip": "ip_t"},
                "states": {"ethernet": ethertype, "ip": {"select": fields, "cases": cases}},
            }
        },
    }


def test_a_select_missing_from_the_assembly_is_detected() -> None:
    known = [["list", ["const", 0x45], ["any"]], "udp"]
    low_bits = [["list", ["any"], ["mask", ["const", 3], ["const", 3]]], "end"]
    program = a_program([known, low_bits, [["any"], "accept"]])
    assert tofino_report.missing_selects(program, "P", ASSEMBLY, "ingress") == []
    without = ASSEMBLY.replace("      0x45**:\n        next: udp\n", "")
    assert tofino_report.missing_selects(program, "P", without, "ingress") == ["ip: [69, 0] to udp"]
    other = ASSEMBLY.replace("0x0806", "0x0807")
    assert tofino_report.missing_selects(program, "P", other, "ingress") == ["ethernet: [2054] to arp"]
    twice = a_program([known, low_bits, low_bits])
    assert tofino_report.missing_selects(twice, "P", ASSEMBLY, "ingress") == ["ip: [0, 3] to end"]


@pytest.mark.parametrize("name", sorted(build_tofino.CHIPS))
def test_the_program_fits(name: str) -> None:
    """The report that is checked in: of these sources, each register in one stage, nothing beyond what a stage has."""
    report = json.loads((P4SRC / "artifacts" / name / build_tofino.REPORT).read_text())
    assert report["sources"] == build_tofino.sources_digest(), (
        "p4src/tna changed: run `make p4-tofino` with its compiler"
    )
    assert report["missing_selects"] == {"ingress": [], "egress": []}
    program = json.loads((P4SRC / "artifacts" / name / build_tofino.PROGRAM).read_text())
    instances = program["controls"]["MainIngress"]["instances"].values()
    registers = {one["name"] for one in instances if one["extern"] == "Register"}
    assert set(report["registers"]) == registers
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
    assert build_tofino.compile_chip(name, INCLUDE, tmp_path) == {"ingress": [], "egress": []}
    for file in (build_tofino.REPORT, build_tofino.P4INFO):
        assert (tmp_path / file).read_bytes() == (P4SRC / "artifacts" / name / file).read_bytes(), file
