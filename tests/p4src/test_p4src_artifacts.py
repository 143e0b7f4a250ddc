"""The checked-in artifacts are the ones these P4 sources compile to."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from rigs.p4src import P4SRC, load

build = load("build")
manifest = json.loads((P4SRC / "artifacts/manifest.json").read_text())


def test_the_sources_are_the_ones_compiled() -> None:
    assert build.sources() == manifest["sources"], "p4src changed: run `make p4` where p4c is installed"


def test_the_artifacts_are_the_ones_listed() -> None:
    artifacts = {
        str(file.relative_to(P4SRC)): build.digest(file)
        for name in build.GEOMETRIES
        for file in (P4SRC / "artifacts" / build.TARGET / name).iterdir()
    }
    assert artifacts == manifest["artifacts"], "an artifact was edited by hand: run `make p4`"


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
def test_compiling_again_gives_the_same_artifacts(name: str, tmp_path: Path) -> None:
    if build.compiler_version() not in manifest["compiler"]:
        pytest.skip(f"another p4c than {manifest['compiler']}")
    build.compile_geometry(name, tmp_path)
    for file in tmp_path.iterdir():
        assert file.read_bytes() == (P4SRC / "artifacts" / build.TARGET / name / file.name).read_bytes(), file.name
