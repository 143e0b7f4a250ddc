"""Compile p4src/v1model with p4c into p4src/artifacts/v1model, one folder a geometry: `make p4`.

The artifacts are checked in, so that p4reduce runs without p4c; `manifest.json` says which sources
and which compiler they came from, and tests/p4src fails when they disagree.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

P4SRC = Path(__file__).resolve().parent
ARTIFACTS = P4SRC / "artifacts"
TARGET = "v1model"
GEOMETRIES = {
    "default": {"columns": 8, "block_words": 32, "slots": 1024},
    "jumbo": {"columns": 8, "block_words": 256, "slots": 1024},
    "small": {"columns": 4, "block_words": 8, "slots": 16},
    "tofino1-4x8": {"columns": 4, "block_words": 8, "slots": 1024},  # the shapes that fit Tofino (build_tofino.py)
    "tofino2-4x16": {"columns": 4, "block_words": 16, "slots": 2048},
}


def sources(folder: str = TARGET) -> dict[str, str]:
    """SHA-256 of every P4 source of a target, by its path below p4src."""
    files = sorted([*P4SRC.glob("shared/*.p4"), *P4SRC.glob(f"{folder}/*.p4")])
    return {str(file.relative_to(P4SRC)): digest(file) for file in files}


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def without_source_info(value: Any) -> Any:
    """BMv2 JSON without source positions: they repeat for every statement, and only BMv2's log prints them."""
    if isinstance(value, dict):
        return {key: without_source_info(item) for key, item in value.items() if key != "source_info"}
    if isinstance(value, list):
        return [without_source_info(item) for item in value]
    return value


def compile_geometry(name: str, folder: Path) -> None:
    """Write p4reduce.json, p4reduce.p4info.txtpb and geometry.toml of one geometry into `folder`."""
    shape = GEOMETRIES[name]
    defines = [f"-D{macro.upper()}={value}" for macro, value in shape.items()]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "p4reduce.json"
        p4info = folder / "p4reduce.p4info.txtpb"
        command = ["p4c-bm2-ss", "--p4v", "16", *defines, "--p4runtime-files", str(p4info), "-o", str(raw)]
        subprocess.run([*command, "v1model/main.p4"], cwd=P4SRC, check=True)
        program = without_source_info(json.loads(raw.read_text()))
    (folder / "p4reduce.json").write_text(json.dumps(program, separators=(",", ":")) + "\n")
    write_geometry(name, folder)


def write_geometry(name: str, folder: Path) -> None:
    """Write geometry.toml, the sizes that every pipeline folder has."""
    (folder / "geometry.toml").write_text("".join(f"{key} = {value}\n" for key, value in GEOMETRIES[name].items()))


def compiler_version() -> str:
    answer = subprocess.run(["p4c-bm2-ss", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"Version (\S+)", answer.stdout + answer.stderr)
    if found is None:
        raise RuntimeError("p4c-bm2-ss --version printed no version")
    return found[1]


def write_manifest(name: str, compiler: str, folder: str, of: Iterable[Path]) -> None:
    """Write which sources in `folder`, and which `compiler`, the files in the folders `of` came from."""
    artifacts = sorted(file for each in of for file in each.iterdir())
    manifest = {
        compiler: f"p4c-bm2-ss {compiler_version()}",
        "sources": sources(folder),
        "artifacts": {str(file.relative_to(P4SRC)): digest(file) for file in artifacts},
    }
    (ARTIFACTS / name).write_text(json.dumps(manifest, indent=2) + "\n")
    print(f"{len(artifacts)} artifacts written to {ARTIFACTS}")


def main() -> int:
    if shutil.which("p4c-bm2-ss") is None:
        print(
            "p4c-bm2-ss is not on PATH: install p4c (https://github.com/p4lang/p4c), then run `make p4` again",
            file=sys.stderr,
        )
        return 1
    for name in GEOMETRIES:
        compile_geometry(name, ARTIFACTS / TARGET / name)
    write_manifest("manifest.json", "compiler", TARGET, [ARTIFACTS / TARGET / name for name in GEOMETRIES])
    return 0


if __name__ == "__main__":
    sys.exit(main())
