"""What is checked in of the TNA program is what its sources give."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rigs.p4src import P4SRC, load

build_tofino = load("build_tofino")
manifest = json.loads((P4SRC / "artifacts" / build_tofino.MANIFEST).read_text())
INCLUDE = os.environ.get(build_tofino.INCLUDE, "")

needs_headers = pytest.mark.skipif(
    shutil.which("p4c-bm2-ss") is None or not (Path(INCLUDE) / "tna.p4").is_file(),
    reason=f"p4c-bm2-ss is not on PATH, or {build_tofino.INCLUDE} names no folder with tna.p4",
)


def test_the_sources_are_the_ones_read() -> None:
    assert build_tofino.sources() == manifest["sources"], "p4src/tna changed: run `make p4-tofino`"


def test_the_artifacts_are_the_ones_written() -> None:
    artifacts = {name: build_tofino.build.digest(P4SRC / name) for name in manifest["artifacts"]}
    assert artifacts == manifest["artifacts"], "an artifact was edited by hand: run `make p4-tofino`"


@pytest.mark.parametrize("name", sorted(build_tofino.CHIPS))
def test_the_program_has_a_register_a_word(name: str) -> None:
    shape = build_tofino.build.GEOMETRIES[name]
    program = json.loads((P4SRC / "artifacts" / name / build_tofino.PROGRAM).read_text())
    instances = program["controls"]["MainIngress"]["instances"].values()
    registers = {i["name"]: i["arguments"][0][1] for i in instances if i["extern"] == "Register"}
    sums = [name for name in registers if ".sums_" in name]
    assert len(sums) == shape["columns"] * shape["block_words"]
    others = {
        "tags.tags",
        "tags.tags_again",
        "tags.rank_tags",
        "slot_state.seen",
        "slot_state.held",
        "check_word.checks",
    }
    keys = {f"column_key_{column}.keys" for column in range(shape["columns"])}
    assert {name.removeprefix("MainIngress.") for name in registers} - {
        name.removeprefix("MainIngress.") for name in sums
    } == others | keys
    assert {name for name, size in registers.items() if size != 2 * shape["slots"]} == {"MainIngress.tags.rank_tags"}


@pytest.mark.tofino
@needs_headers
@pytest.mark.parametrize("name", sorted(build_tofino.CHIPS))
def test_reading_again_gives_the_same(name: str) -> None:
    if build_tofino.build.compiler_version() not in manifest["front_end"]:
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
