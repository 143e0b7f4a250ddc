"""Compressors by name: those of this package, those that are registered, and those of other installed packages.

@register("top-signs")              # then by_name("top-signs", k=25), once the module is imported
class TopSigns(Compressor): ...

[project.entry-points."p4reduce.compressors"]      # in the pyproject.toml of a package of one's own:
top-signs = "my_package.top_signs"                 # then without an import too
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeVar, get_type_hints

from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.policy import Policy

ENTRY_POINTS: Final = "p4reduce.compressors"
"""The group of entry points under which a package names its compressors and the modules that register them."""

Class = TypeVar("Class", bound=type[Compressor])

_classes: dict[str, type[Compressor]] = {}
_TYPES: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
}


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


def registered() -> Mapping[str, type[Compressor]]:
    """Return the classes known so far, by name."""
    return dict(_classes)


def class_of(name: str) -> type[Compressor]:
    """Return the class of this name; import the module of an installed package that declares it.

    Raises ValueError that lists the known names, or names the package whose entry point fails.
    """
    if name not in _classes and (brought := _brought().get(name)) is not None:
        package = brought.dist.name if brought.dist else brought.value
        try:
            brought.load()
        except Exception as error:
            raise ValueError(f"{package} brings {name!r}, but it cannot be imported: {error!r}") from error
        if name not in _classes:
            raise ValueError(f'{package} brings {name!r}, but nothing in {brought.value} is @register("{name}")')
    if name not in _classes:
        raise ValueError(f"unknown compressor {name!r}; known are {', '.join(known_names())}")
    return _classes[name]


def known_names() -> list[str]:
    """Return every name that `class_of` takes."""
    return list(dict.fromkeys([*_classes, *_brought()]))


def by_name(name: str, /, **options: Any) -> Compressor:
    """Make the compressor of this name with these keywords. Raises ValueError that names what is unknown or wrong."""
    cls = class_of(name)
    known = inspect.signature(cls).parameters
    check_known(f"{name}: unknown option", options, known)
    types = get_type_hints(cls.__init__)
    for option, value in options.items():
        _check_type(f"{name}: {option}", value, types.get(option))
    required = [parameter.name for parameter in known.values() if parameter.default is parameter.empty]
    if missing := [parameter for parameter in required if parameter not in options]:
        raise ValueError(f"{name}: give {', '.join(missing)}")
    try:
        return cls(**options)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def check_known(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError that lists the known names when others are given."""
    known = list(known)
    if unknown := [name for name in given if name not in known]:
        raise ValueError(f"{what} {', '.join(unknown)}; known are {', '.join(known) or 'none'}")


def _brought() -> dict[str, EntryPoint]:
    """Return the entry points of installed packages, by name."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _check_type(what: str, value: Any, hint: Any) -> None:
    """Raise ValueError unless `value` is what the annotation says; annotations of other kinds are not checked."""
    if hint == Policy | None:
        if value is not None and not isinstance(value, Policy):
            raise ValueError(f"{what} is {value!r}; give a Policy")
    elif hint in _TYPES:
        types, text = _TYPES[hint]
        if not isinstance(value, types) or (isinstance(value, bool) and hint is not bool):
            raise ValueError(f"{what} is {value!r}; give {text}")
