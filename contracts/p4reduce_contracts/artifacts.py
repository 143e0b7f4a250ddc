"""The compiled pipelines: a folder for each target and geometry, with the program, its P4Info and its sizes.

A pipeline folder holds p4reduce.p4info.txtpb (P4Info as text), geometry.toml, and what a switch loads: p4reduce.json
(BMv2 JSON), or for a Tofino tofino.bin, context.json and bfrt.json.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from p4reduce_contracts.errors import GeometryMismatchError
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import MAX_BLOCK_WORDS, MAX_COLUMNS, MAX_SLOTS
from p4reduce_runtime import settings
from p4reduce_runtime.settings import ConfigError

PROGRAM = "p4reduce.json"
TOFINO_BINARY, TOFINO_CONTEXT, TOFINO_SCHEMA = "tofino.bin", "context.json", "bfrt.json"
P4INFO = "p4reduce.p4info.txtpb"
GEOMETRY = "geometry.toml"

TARGET = "v1model"
"""The target of pipelines named without one."""


class PipelineNotFoundError(Exception):
    """There is no such pipeline, or its folder is not whole."""


@dataclass(frozen=True)
class SwitchGeometry(Geometry):
    """All that a pipeline was compiled with: the shape of its frames, and the slots of the whole switch."""

    slots: int


class _Sizes(msgspec.Struct, frozen=True):
    """What is read of geometry.toml."""

    columns: Annotated[int, Meta(ge=1, le=MAX_COLUMNS)]
    block_words: Annotated[int, Meta(ge=1, le=MAX_BLOCK_WORDS)]
    slots: Annotated[int, Meta(ge=1, le=MAX_SLOTS)]


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


def geometry(folder: Path) -> SwitchGeometry:
    """Read the sizes of the pipeline in `folder`. Raises PipelineNotFoundError if they make no sense."""
    path = folder / GEOMETRY
    try:
        sizes = settings.read_file(path, "the geometry", _sizes)
        return SwitchGeometry(sizes.columns, sizes.block_words, sizes.slots)
    except ConfigError as error:
        raise PipelineNotFoundError(str(error)) from None
    except GeometryMismatchError as error:
        raise PipelineNotFoundError(f"{path}: {error}") from None


def _sizes(text: str) -> _Sizes:
    return settings.convert(settings.parse_toml(text), _Sizes)


def _roots() -> tuple[Path, ...]:
    """Where pipelines lie: in a checkout of the repository, else where the installed package puts them."""
    checkout = Path(__file__).resolve().parents[2] / "p4src" / "artifacts"
    installed = Path(sys.prefix) / "share" / "p4reduce" / "pipelines"
    return tuple(root / TARGET for root in (checkout, installed) if (root / TARGET).is_dir())


def _known(roots: tuple[Path, ...]) -> str:
    folders = (folder for root in roots for folder in root.iterdir())
    names = sorted({folder.name for folder in folders if (folder / PROGRAM).is_file()})
    if not names:
        return "none is installed: compile the P4 program, or give the path of a pipeline folder"
    return f"known are {', '.join(names)} (or give the path of a pipeline folder, with a /)"
