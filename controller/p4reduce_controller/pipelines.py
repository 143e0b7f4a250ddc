"""The compiled pipelines: a folder for each geometry, with the program, its P4Info and its sizes.

A pipeline folder holds p4reduce.json (BMv2 JSON), p4reduce.p4info.txtpb (P4Info as text) and geometry.toml.
"""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "p4reduce.json"
P4INFO = "p4reduce.p4info.txtpb"
GEOMETRY = "geometry.toml"

_LIMITS = {"columns": (1, 8), "block_words": (1, 64), "slots": (1, 32768)}
_DESCRIPTOR_WORDS = 4  # words that each rank's call descriptor takes in an opening frame
_MAX_RANKS = 32  # bits of `seen`


class PipelineNotFound(Exception):
    """There is no such pipeline, or its folder is not whole."""


@dataclass(frozen=True)
class Geometry:
    """A pipeline's compile-time sizes: blocks in a frame, 32-bit words in a block, slots in the switch."""

    columns: int
    block_words: int
    slots: int

    @property
    def max_world_size(self) -> int:
        """The most ranks of one job: each has a bit in `seen` and 4 words in a collective's opening frame."""
        return min(_MAX_RANKS, self.columns * self.block_words // _DESCRIPTOR_WORDS)


def find(name_or_dir: str | os.PathLike[str], roots: tuple[Path, ...] | None = None) -> Path:
    """The folder of a pipeline, by geometry name ("default") or by path. Raises PipelineNotFound."""
    roots = _roots() if roots is None else roots
    text = os.fspath(name_or_dir)
    is_path = os.sep in text or not isinstance(name_or_dir, str)
    by_name = [] if is_path else [root / text for root in roots]
    for folder in [*by_name, Path(text).expanduser()]:
        if folder.is_dir():
            missing = [one for one in (PROGRAM, P4INFO, GEOMETRY) if not (folder / one).is_file()]
            if missing:
                raise PipelineNotFound(
                    f"the pipeline folder {folder} lacks {', '.join(missing)}; compile the P4 program again"
                )
            return folder
    if is_path:
        raise PipelineNotFound(f"there is no pipeline folder {text}")
    raise PipelineNotFound(f"there is no pipeline {text!r}; {_known(roots)}")


def geometry(folder: Path) -> Geometry:
    """Read the sizes of the pipeline in `folder`. Raises PipelineNotFound if they make no sense."""
    path = folder / GEOMETRY
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PipelineNotFound(f"cannot read {path}: {error}") from None
    sizes: dict[str, int] = {}
    for key, (low, high) in _LIMITS.items():
        value = values.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise PipelineNotFound(
                f"{path}: {key} must be a whole number between {low} and {high}, not {value!r}"
            )
        sizes[key] = value
    return Geometry(**sizes)


def _roots() -> tuple[Path, ...]:
    """Where pipelines lie: in a checkout of the repository, else where the installed package puts them."""
    checkout = Path(__file__).resolve().parents[2] / "p4src" / "artifacts"
    installed = Path(sys.prefix) / "share" / "p4reduce" / "pipelines"
    return tuple(root for root in (checkout, installed) if root.is_dir())


def _known(roots: tuple[Path, ...]) -> str:
    folders = (folder for root in roots for folder in root.iterdir())
    names = sorted({folder.name for folder in folders if (folder / PROGRAM).is_file()})
    if not names:
        return "none is installed: compile the P4 program, or give the path of a pipeline folder"
    return f"known are {', '.join(names)} (or give the path of a pipeline folder, with a /)"
