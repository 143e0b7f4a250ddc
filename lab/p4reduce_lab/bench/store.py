"""What cases found, one file a case, so that an interrupted run can continue.

A case's file is used only for the same software, machine and size of run, of which it has a digest.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from p4reduce_lab.bench.case import Findings
from p4reduce_runtime import pipeline_folders

PACKAGES = ("p4reduce_contracts", "p4reduce", "p4reduce_controller", "p4reduce_switch", "p4reduce_lab")


class Store:
    """The folder of the cases' files."""

    def __init__(self, out: Path, quick: bool) -> None:
        self.folder = out / ("quick-cases" if quick else "cases")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._quick = quick

    def raw(self, case: str) -> Path:
        """Return the file that the case's own process writes."""
        return self.folder / f"{case}.found"

    def load(self, case: str) -> Findings | None:
        """Return the case's findings in an earlier run of the same software; None without one."""
        try:
            document = json.loads(self._path(case).read_text(encoding="utf-8"))
            return Findings.of(document["findings"]) if document["of"] == self._of() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def take(self, case: str, seconds: float) -> Findings:
        """Keep what the case's process has written; return it. Raises OSError or ValueError if it wrote nothing."""
        document = json.loads(self.raw(case).read_text(encoding="utf-8"))
        kept = {"of": self._of(), "seconds": seconds, "findings": document}
        part = self._path(case).with_suffix(".part")
        part.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        part.replace(self._path(case))
        self.raw(case).unlink()
        return Findings.of(document)

    def forget(self, case: str) -> None:
        """Delete the findings of an earlier run."""
        self._path(case).unlink(missing_ok=True)
        self.raw(case).unlink(missing_ok=True)

    def _path(self, case: str) -> Path:
        return self.folder / f"{case}.json"

    def _of(self) -> dict[str, Any]:
        return {"quick": self._quick, "software": software()}


@cache
def software() -> str:
    """Return a digest of the sources of all packages and of the switch program."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec is not None else []:
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    digest.update((pipeline_folders.find("default") / pipeline_folders.PROGRAM).read_bytes())
    return digest.hexdigest()[:16]
