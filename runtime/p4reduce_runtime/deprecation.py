"""Old names that stay for one release: they work as before and give a DeprecationWarning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def deprecated_names(module: str, targets: Mapping[str, str], *, stacklevel: int = 2) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module (PEP 562) that finds its deprecated names.

    `targets` maps each to the full name of what it stands for, "package.module.Name". That module is imported when the
    old name is used. Raises AttributeError for any other name. `stacklevel` is that of `warnings.warn`: 3 where the
    module's `__getattr__` calls this one.
    """

    def __getattr__(name: str) -> Any:
        target = targets.get(name)
        if target is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        owner, _, attribute = target.rpartition(".")
        warnings.warn(f"{module}.{name} is deprecated: use {target}", DeprecationWarning, stacklevel=stacklevel)
        return getattr(import_module(owner), attribute)

    return __getattr__
