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
import tomllib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.registry import by_name, check_known, class_of, known_names


def from_toml(path: str | PathLike[str]) -> Compressor:
    """Make the compressor that a file describes. Raises ValueError that names the file and what is wrong with it."""
    try:
        return _from_table(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # broken TOML and UTF-8 are ValueErrors too
        raise ValueError(f"{path}: {error}") from error


def _from_table(table: Mapping[str, Any]) -> Compressor:
    check_known("unknown key", table, ("compressor", "options", "policy"))
    name = table.get("compressor")
    if not isinstance(name, str):
        raise ValueError(f'give compressor = "...", one of {", ".join(known_names())}')
    cls = class_of(name)
    for key in ("options", "policy"):
        if not isinstance(table.get(key, {}), Mapping):
            raise ValueError(f"{key} is a table: begin it with [{key}]")
    options = dict(table.get("options", {}))
    if "policy" in options:
        raise ValueError("the policy is a table of its own: begin it with [policy]")
    if "policy" in table:
        if "policy" not in inspect.signature(cls).parameters:
            raise ValueError(f"{name} takes no policy: leave [policy] out")
        options["policy"] = Policy.from_mapping(table["policy"], cls.default_policy())
    return by_name(name, **options)
