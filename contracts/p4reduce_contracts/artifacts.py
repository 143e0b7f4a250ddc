"""The sizes of a compiled pipeline, from its folder (p4reduce_runtime/pipeline_folders.py)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from p4reduce_contracts.errors import GeometryMismatchError
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import MAX_BLOCK_WORDS, MAX_COLUMNS, MAX_SLOTS
from p4reduce_runtime import settings
from p4reduce_runtime.pipeline_folders import GEOMETRY, PipelineNotFoundError
from p4reduce_runtime.settings import ConfigError


@dataclass(frozen=True)
class SwitchGeometry(Geometry):
    """All that a pipeline was compiled with: the shape of its frames, and the slots of the whole switch."""

    columns: Annotated[int, Meta(ge=1, le=MAX_COLUMNS)]
    block_words: Annotated[int, Meta(ge=1, le=MAX_BLOCK_WORDS)]
    slots: Annotated[int, Meta(ge=1, le=MAX_SLOTS)]


def geometry(folder: Path) -> SwitchGeometry:
    """Read the sizes of the pipeline in `folder`. Raises PipelineNotFoundError if they make no sense."""
    path = folder / GEOMETRY
    try:
        return settings.read_file(path, "the geometry", _sizes)
    except ConfigError as error:
        raise PipelineNotFoundError(str(error)) from None
    except GeometryMismatchError as error:
        raise PipelineNotFoundError(f"{path}: {error}") from None


def _sizes(text: str) -> SwitchGeometry:
    return settings.convert(settings.parse_toml(text), SwitchGeometry)
