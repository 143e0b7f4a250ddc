"""Compile the .p4 files of this folder: python build.py (needs p4c-bm2-ss)."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SHARED = "common.p4"


def without_places(value: Any) -> Any:
    """The same JSON without the positions in the source and without paths."""
    if isinstance(value, dict):
        return {k: without_places(v) for k, v in value.items() if k not in ("source_info", "program")}
    if isinstance(value, list):
        return [without_places(v) for v in value]
    return value


def compile_p4(source: Path) -> Any:
    """The BMv2 JSON of one program."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out.json"
        subprocess.run(
            ["p4c-bm2-ss", "-o", str(target), source.name],
            cwd=source.parent,
            check=True,
            capture_output=True,
            timeout=120,
        )
        return without_places(json.loads(target.read_text()))


def sources() -> list[Path]:
    """All programs of this folder."""
    return sorted(p for p in HERE.glob("*.p4") if p.name != SHARED)


if __name__ == "__main__":
    for path in sources():
        path.with_suffix(".json").write_text(json.dumps(compile_p4(path), separators=(",", ":")) + "\n")
