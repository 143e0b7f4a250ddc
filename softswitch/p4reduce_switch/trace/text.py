"""A trace as text to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from p4reduce_switch.program import PacketTrace
from p4reduce_switch.program.steps import Step
from p4reduce_switch.trace.lines import Templates, filled

TEMPLATES: Final[Templates] = {
    Step.RECEIVED: ("received at port {port}: {bytes} bytes {frame}",),
    Step.STATE: ("  parser state {name}",),
    Step.EXTRACT: ("    extract {name}",),
    Step.SELECT: ("key?     select by {key}",),
    Step.PARSED: ("error?   parser error {error}",),
    Step.VERIFIED: (
        "right?   checksum {name} {actual:#x}: right",
        "right!   checksum {name} {actual:#x}: wrong, {computed:#x} computed",
    ),
    Step.UPDATED: ("  checksum {name} updated",),
    Step.CONTROL: ("  {name}",),
    Step.CONDITION: ("    condition {name}: {holds}",),
    Step.TABLE: (
        "hit?     table {name} [{pairs}]: hit, entry {handle}: {entry} {target}",
        "missed?     table {name} [{pairs}]: miss",
    ),
    Step.ACTION: ("      action {name}({pairs})",),
    Step.PRIMITIVE: ("shown?         {name}",),
    Step.READ: ("        register {name}[{index}] = {value:#x}",),
    Step.WRITTEN: ("        register {name}[{index}] <- {value:#x}",),
    Step.COUNTED: ("        counter {name}[{index}]",),
    Step.METERED: ("        meter {name}[{index}]: color {color}",),
    Step.MULTICAST: ("  to multicast group {group}: {replicas} copies", "dropped?   dropped: {dropped}"),
    Step.UNICAST: ("dropped!   to port {port}", "dropped?   dropped: {dropped}"),
    Step.COPY: ("  copy of {of} to port {port}, instance {instance}",),
    Step.LEFT: ("dropped?   dropped after egress: {dropped}",),
    Step.EMIT: ("    emit {name}",),
    Step.SENT: ("sent to port {port}: {bytes} bytes {frame}",),
    Step.CLONED: ("  cloned in {in}, session {session}: {replicas} copies",),
    Step.RESUBMITTED: ("  resubmitted",),
    Step.RECIRCULATED: ("  recirculated",),
    Step.QUEUED: ("  in the queue of port {port}, priority {priority}", "dropped?   dropped: {dropped}"),
    Step.FAILED: ("failed: {error}",),
}
ENDS: Final = ("mark_to_drop", "drop", "exit")
"""Primitives that are shown without a place in the program, too."""


def lines(trace: PacketTrace) -> Iterator[str]:
    """Yield a line for each step: number of the packet and of its copy, what happened, and where."""
    for event in trace.events:
        values = event.values
        more = {
            "pairs": _pairs(values.get("key", {}) if event.step is Step.TABLE else values),
            "missed": not values.get("hit") and values.get("key"),
            "holds": str(values.get("holds")).lower(),
            "entry": _pairs(values.get("match", {})),
            "target": values.get("target", ""),
            "shown": event.at or event.name in ENDS,
            "frame": event.frame,
        }
        for text in filled(TEMPLATES, event, **more):
            at = f"  # {event.at}: {event.code}" if event.at else ""
            yield f"{trace.number}.{event.copy}  {text.rstrip()}{at}"


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
