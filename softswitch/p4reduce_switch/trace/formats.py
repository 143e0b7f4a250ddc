"""The formats in which commands print traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from google.protobuf import text_format

from p4reduce_switch.program import PacketTrace
from p4reduce_switch.trace import text
from p4reduce_switch.trace.bmv2 import messages


def _json(trace: PacketTrace) -> Iterator[str]:
    yield msgspec.json.encode(trace).decode()


def _bmv2(trace: PacketTrace) -> Iterator[str]:
    for message in messages(trace):
        yield text_format.MessageToString(message)


FORMATS: Final[dict[str, Callable[[PacketTrace], Iterator[str]]]] = {"text": text.lines, "json": _json, "bmv2": _bmv2}
"""Name -> the format: a line for each step, a line for each packet, or BMv2's message in protobuf's text format."""
