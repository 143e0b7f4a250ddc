"""The compiled pipelines: a folder for each target and geometry, with the program, its P4Info and its sizes.

A pipeline folder holds p4reduce.p4info.txtpb (P4Info as text), geometry.toml, and what a switch loads: p4reduce.json
(BMv2 JSON), or for a Tofino tofino.bin, context.json and bfrt.json.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAM = "p4reduce.json"
TOFINO_BINARY, TOFINO_CONTEXT, TOFINO_SCHEMA = "tofino.bin", "context.json", "bfrt.json"
P4INFO = "p4reduce.p4info.txtpb"
GEOMETRY = "geometry.toml"

TARGET = "v1model"
"""The target of pipelines named without one."""


class PipelineNotFoundError(Exception):
    """There is no such pipeline, or its folder is not whole."""


def find(name_or_dir: str | os.PathLike[str], roots: tuple[Path, ...] | None = None) -> Path:
    """The folder of a pipeline, by the name of its geometry ("default") or by path. Raises PipelineNotFoundError."""
    roots = _roots() if roots is None else roots
    text = os.fspath(name_or_dir)
    is_path = os.sep in text or not isinstance(name_or_dir, str)
    by_name = [] if is_path else [root / text for root in roots]
    for folder in [*by_name, Path(text).expanduser()]:
        if folder.is_dir():
            missing = [file for file in (P4INFO, GEOMETRY) if not (folder / file).is_file()]
            if not any((folder / program).is_file() for program in (PROGRAM, TOFINO_BINARY)):
                missing.insert(0, f"{PROGRAM} or, of a Tofino, {TOFINO_BINARY}")
            if missing:
                raise PipelineNotFoundError(
                    f"the pipeline folder {folder} lacks {', '.join(missing)}; compile the P4 program again, with "
                    "`make p4`, or for a Tofino with `make p4-tofino`, which writes folders below out/tofino"
                )
            return folder
    if is_path:
        raise PipelineNotFoundError(f"there is no pipeline folder {text}")
    raise PipelineNotFoundError(f"there is no pipeline {text!r}; {_known(roots)}")


def _roots() -> tuple[Path, ...]:
    """The folders of pipelines: in a checkout of the repository, else where the installed package puts them."""
    checkout = Path(__file__).resolve().parents[2] / "p4src" / "artifacts"
    installed = Path(sys.prefix) / "share" / "p4reduce" / "pipelines"
    return tuple(root / TARGET for root in (checkout, installed) if (root / TARGET).is_dir())


def _known(roots: tuple[Path, ...]) -> str:
    folders = (folder for root in roots for folder in root.iterdir())
    names = sorted({folder.name for folder in folders if (folder / PROGRAM).is_file()})
    if not names:
        return "none is installed: compile the P4 program, or give the path of a pipeline folder"
    return f"known are {', '.join(names)} (or give the path of a pipeline folder, with a /)"
