"""Compressors by name: those of this package, and those that a module of one's own registers.

@register("top-signs")              # then by_name("top-signs", k=25), once the module is imported
class TopSigns(Compressor): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from p4reduce.compressors.interface import Compressor

Class = TypeVar("Class", bound=type[Compressor])

_classes: dict[str, type[Compressor]] = {}


def register(name: str) -> Callable[[Class], Class]:
    """Register a compressor under a name; a class decorator.

    Raises ValueError when another has that name.
    """
    if not isinstance(name, str):
        raise ValueError(f'give the compressor a name: @register("...") and not @register on {name!r}')

    def under_this_name(cls: Class) -> Class:
        known = _classes.setdefault(name, cls)
        if known is not cls:
            raise ValueError(f"two compressors are called {name!r}: {known.__name__} and {cls.__name__}")
        cls.name = name
        return cls

    return under_this_name


def by_name(name: str, /, **options: Any) -> Compressor:
    """Make the compressor of this name with the keywords of its class. Raises ValueError for an unknown name."""
    if name not in _classes:
        raise ValueError(f"unknown compressor {name!r}; known are {', '.join(_classes)}")
    return _classes[name](**options)
