"""Lines about a step, from templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from p4reduce_switch.program.steps import Step
from p4reduce_switch.program.trace import Event

Templates = Mapping[Step, tuple[str, ...]]
"""Each step's lines. One that begins with "key? " or "key! " is for steps with, or without, that value."""


def filled(templates: Templates, event: Event, **more: Any) -> Iterator[str]:
    """Yield the lines of a step, with its values, its name, its place and what is in `more`."""
    words = {"name": event.name, "at": event.at, "code": event.code, **event.values, **more}
    for template in templates.get(event.step, ()):
        key, mark, text = template.partition("? " if "? " in template else "! ")
        if not mark:
            yield template.format_map(words)
        elif bool(words.get(key)) == (mark == "? "):
            yield text.format_map(words)
