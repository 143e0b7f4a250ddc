"""What cases found, one file a case, so that an interrupted run can continue.

A case's file is used only for the same software and size of run, of which it says the digest.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from p4reduce_lab.bench.case import Findings
from p4reduce_runtime import pipeline_folders

PACKAGES = ("p4reduce_contracts", "p4reduce", "p4reduce_controller", "p4reduce_switch", "p4reduce_lab")


class _Kept(msgspec.Struct):
    software: str
    quick: bool
    findings: Findings


def save(path: Path, findings: Findings, *, quick: bool) -> None:
    """Write a case's findings, at once."""
    kept = msgspec.json.format(msgspec.json.encode(_Kept(software(), quick, findings)), indent=1)
    part = path.with_suffix(".part")
    part.write_bytes(kept + b"\n")
    part.replace(path)


def load(path: Path, *, quick: bool) -> Findings | None:
    """Return the findings that a run of the same software has written; None without them."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError):
        return None
    return kept.findings if (kept.software, kept.quick) == (software(), quick) else None


@cache
def software() -> str:
    """Return a digest of the sources and tables of all packages, and of the switch program."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec is not None else []:
            for path in sorted(each for each in Path(folder).rglob("*") if each.suffix in (".py", ".toml")):
                digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    digest.update((pipeline_folders.find("default") / pipeline_folders.PROGRAM).read_bytes())
    return digest.hexdigest()[:16]
