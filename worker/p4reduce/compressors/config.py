"""Compressors from a TOML file.

    compressor = "adacomp"
    [options]                # the class's own keywords
    form = "gather"
    [policy]                 # elements in a bin, chunk or block by kind of layer, or "dense"
    conv = 50
    first_layer = "dense"
    [policy.names]           # by pattern of parameter names; the first match counts
    "fc2.*" = "dense"

What the file leaves out is the class's own default, of the policy too.
"""

from __future__ import annotations

import inspect
from os import PathLike
from typing import Any

from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.registry import by_name, class_of, known_names
from p4reduce_runtime import settings
from p4reduce_runtime.settings import ConfigError, Settings


class _File(Settings, frozen=True):
    """What a file may say."""

    compressor: str = ""
    options: dict[str, Any] = {}  # msgspec copies it
    policy: dict[str, Any] | None = None


def from_toml(path: str | PathLike[str]) -> Compressor:
    """Return the compressor that a file describes. Raises ConfigError, a ValueError, naming the file and the place."""
    return settings.read_file(path, "the compressor", _parse)


def _parse(text: str) -> Compressor:
    try:
        return _made(settings.convert(settings.parse_toml(text), _File))
    except ConfigError:
        raise
    except ValueError as error:  # of TOML, of the class, or of the policy
        raise ConfigError(str(error)) from error


def _made(file: _File) -> Compressor:
    if not file.compressor:
        raise ConfigError(f'give compressor = "...", one of {", ".join(known_names())}')
    cls, options = class_of(file.compressor), file.options
    if "policy" in options:
        raise ConfigError("the policy is a table of its own: begin it with [policy]")
    if file.policy is not None:
        if "policy" not in inspect.signature(cls).parameters:
            raise ConfigError(f"{file.compressor} takes no policy: leave [policy] out")
        options["policy"] = Policy.from_mapping(file.policy, cls.default_policy())
    return by_name(file.compressor, **options)
