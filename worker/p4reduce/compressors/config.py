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
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.registry import by_name, class_of, known_names
from p4reduce_runtime import checked
from p4reduce_runtime.checked import ConfigError


@dataclass(frozen=True)
class _File:
    """What a file may say."""

    compressor: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] | None = None


def from_toml(path: str | PathLike[str]) -> Compressor:
    """Return the compressor that a file describes. Raises ConfigError, a ValueError, naming the file and the place."""
    return checked.read_file(path, "the compressor", _parse)


def _parse(text: str) -> Compressor:
    try:
        return _made(checked.read(_File, checked.parse_toml(text), checks=_CHECKS))
    except ConfigError:
        raise
    except ValueError as error:  # of TOML, of the class, or of the policy
        raise ConfigError(str(error)) from error


def _made(file: _File) -> Compressor:
    if not file.compressor:
        raise ConfigError(_which())
    cls, options = class_of(file.compressor), dict(file.options)
    if "policy" in options:
        raise ConfigError("the policy is a table of its own: begin it with [policy]")
    if file.policy is not None:
        if "policy" not in inspect.signature(cls).parameters:
            raise ConfigError(f"{file.compressor} takes no policy: leave [policy] out")
        options["policy"] = Policy.from_mapping(file.policy, cls.default_policy())
    return by_name(file.compressor, **options)


def _name(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(_which())
    return value


def _table(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} is a table: begin it with [{where}]")
    return value


def _which() -> str:
    return f'give compressor = "...", one of {", ".join(known_names())}'


_CHECKS: dict[str, checked.Check[Any]] = {"compressor": _name, "options": _table, "policy": _table}
