"""Checks of a compressor's settings, which a text may give too: types and values, before anything is summed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import TypeIs

LARGEST: Final = 2**31 - 1
"""The largest whole number that a setting takes."""


def is_number(value: object) -> TypeIs[float]:
    """Return whether a setting is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object, least: int) -> bool:
    """Return whether a setting is a whole number from `least` to `LARGEST`."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST


def check_whole(setting: str, value: object, least: int) -> None:
    """Raise ValueError for a setting that is no whole number from `least` to `LARGEST`."""
    if not is_whole(value, least):
        raise ValueError(f"{setting} is {value!r}; give a whole number, {least} or more and at most {LARGEST}")


def check_choice(setting: str, value: object, choices: tuple[int, ...]) -> None:
    """Raise ValueError for a setting that is not one of these whole numbers."""
    if type(value) is not int or value not in choices:
        raise ValueError(f"{setting} is {value!r}; give {', '.join(map(str, choices[:-1]))} or {choices[-1]}")
