"""Compile the programs of this folder and of beyond/: python build.py (needs p4c-bm2-ss)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rigs.limits import LIMIT_S

HERE = Path(__file__).resolve().parent
SHARED = "construct.p4"


def without_places(value: Any) -> Any:
    """The same JSON without positions in the source and paths."""
    if isinstance(value, dict):
        return {k: without_places(v) for k, v in value.items() if k not in ("source_info", "program")}
    if isinstance(value, list):
        return [without_places(v) for v in value]
    return value


def compile_p4(source: Path) -> tuple[str, str]:
    """(BMv2 JSON, P4Info text) of one program."""
    with tempfile.TemporaryDirectory() as folder:
        target, p4info = Path(folder) / "out.json", Path(folder) / "out.txtpb"
        command = ["p4c-bm2-ss", "-o", str(target), "--p4runtime-files", str(p4info), source.name]
        done = subprocess.run(command, cwd=source.parent, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode != 0 or not target.exists():
            raise RuntimeError(f"{source.name} does not compile:\n{done.stderr}")
        program = without_places(json.loads(target.read_text()))
        return json.dumps(program, separators=(",", ":")) + "\n", p4info.read_text()


def sources() -> list[Path]:
    """All programs, those that BMv2 does not run too."""
    return sorted(p for p in HERE.rglob("*.p4") if p.name != SHARED)


def main() -> int:
    if shutil.which("p4c-bm2-ss") is None:
        print("p4c-bm2-ss is not on PATH: install p4c (https://github.com/p4lang/p4c)", file=sys.stderr)
        return 1
    for path in sources():
        program, p4info = compile_p4(path)
        path.with_suffix(".json").write_text(program)
        path.with_suffix(".p4info.txtpb").write_text(p4info)
    return 0


if __name__ == "__main__":
    sys.exit(main())
