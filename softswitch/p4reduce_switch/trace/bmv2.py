"""A trace as BMv2 shows it: the lines of its log, and its message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from p4reduce_switch.program.steps import Step
from p4reduce_switch.program.trace import Event, PacketTrace
from p4reduce_switch.trace import trace_pb2 as pb
from p4reduce_switch.trace.lines import Templates, filled

CLONE_GROUPS: Final = 0x8000
"""BMv2's P4Runtime server replicates a clone session by the multicast group of this number and more."""
TEMPLATES: Final[Templates] = {
    Step.RECEIVED: ("D Processing packet received on port {port}",),
    Step.PARSER: ("D Parser 'parser': start",),
    Step.STATE: ("D Parser 'parser' entering state '{name}'",),
    Step.EXTRACT: ("fixed? D Extracting header '{name}'", "sized? D Extracting variable-sized header '{name}'"),
    Step.SELECT: (
        "key? D Parser state '{name}': key is {key}",
        "key! D Parser state '{name}' has no switch, going to default next state",
        "T Bytes parsed: {parsed}",
    ),
    Step.PARSED: ("error? E Exception while parsing: {error}",),
    Step.VERIFIED: (
        "right? D Verified checksum '{name}': passed",
        "right! D Verified checksum '{name}': failed",
        "right! E Checksum '{name}' is not correct",
    ),
    Step.CHECKED: ("D Parser 'parser': end",),
    Step.CONTROL: ("D Pipeline '{name}': start",),
    Step.ENDED: ("D Pipeline '{name}': end",),
    Step.CONDITION: ('T {place}Condition "{text}" ({name}) is {truth}',),
    Step.ACTION: ("T {place}Action {name}",),
    Step.PRIMITIVE: ("code? T {place}Primitive {code}", "code! T Primitive (no source info)"),
    Step.READ: ("T Read register '{name}' at index {index} read value {value}",),
    Step.WRITTEN: ("T Wrote register '{name}' at index {index} with value {value}",),
    Step.COUNTED: ("T Updated counter '{name}' at index {index}",),
    Step.METERED: (
        "D Executing meter {name}[{index}]",
        "T Updated meter '{name}' at index {index}, assigning dest field the color result {color}",
    ),
    Step.UNICAST: ("D Egress port is {port}", "dropped? D Dropping packet at the end of ingress"),
    Step.LEFT: ("dropped? D Dropping packet at the end of egress",),
    Step.MULTICAST: ("D Multicast requested for packet",),
    Step.COPY: ("D Replicating packet on port {port}",),
    Step.CLONED: ("D Cloning packet at {in}", "replicas? D Cloning packet to MGID {group}"),
    Step.RESUBMITTED: ("D Resubmitting packet",),
    Step.RECIRCULATED: ("D Recirculating packet",),
    Step.DEPARSER: ("D Deparser 'deparser': start",),
    Step.UPDATED: ("D Updating checksum '{name}'",),
    Step.EMIT: ("D Deparsing header '{name}'",),
    Step.DEPARSED: ("D Deparser 'deparser': end",),
    Step.SENT: ("D Transmitting packet of size {bytes} out of port {port}",),
}
"""Each with its level: trace, debug or error."""


def log_lines(trace: PacketTrace) -> Iterator[tuple[str, str]]:
    """Yield what BMv2 logs for a packet: the level, T, D or E, and the text from the packet's number on."""
    for index, event in enumerate(trace.events):
        copy = event.values["of"] if event.step is Step.COPY else event.copy
        if event.step is Step.TABLE:
            rest = (other for other in trace.events[index + 1 :] if other.copy == event.copy)
            found = _table(event, next(rest, None))
        else:
            found = filled(TEMPLATES, event, **_more(event))
        for line in found:
            yield line[0], f"[{trace.number}.{copy}] [cxt 0] {line[2:]}"


def _more(event: Event) -> dict[str, Any]:
    of_stack = event.name.endswith(".next")  # BMv2 has no line about these
    more: dict[str, Any] = {
        "place": f"{event.at} " if event.at else "",
        "text": event.code or event.name,
        "truth": str(event.values.get("holds")).lower(),
        "fixed": not of_stack and "varbit" not in event.values,
        "sized": not of_stack and "varbit" in event.values,
    }
    return more | {"group": CLONE_GROUPS + event.values["session"]} if event.step is Step.CLONED else more


def _table(event: Event, following: Event | None) -> Iterator[str]:
    name, values = event.name, event.values
    yield f"T Applying table '{name}'"
    width = max((20, *map(len, values["key"])))
    yield "D Looking up key:\n" + "".join(f"* {key:<{width}}: {value}\n" for key, value in values["key"].items())
    action = "NULL"
    if following is not None and following.step is Step.ACTION:
        action = _call(following)
    if values["hit"]:
        yield f"D Table '{name}': hit with handle {values['handle']}"
        lines = [f"D Dumping entry {values['handle']}", "Match key:"]
        for key, part in values["match"].items():
            kind, _, text = part.partition(" ")
            lines.append(f"* {key:<{width}}: {kind.upper():<10}{text}")
        lines += [f"Action entry: {action}", ""]
        yield "\n".join(lines)
    else:
        yield f"D Table '{name}': miss"
    yield f"D Action entry is {action}"


def _call(action: Event) -> str:
    return f"{action.name} - " + "".join(f"{int(value, 16):x}," for value in action.values.values())


# ---- the message


_STAGES: Final = {
    Step.PARSER: (pb.PipelineStageEvent.PARSER, pb.PipelineStageEvent.ENTER),
    Step.CHECKED: (pb.PipelineStageEvent.PARSER, pb.PipelineStageEvent.EXIT),
    Step.CONTROL: (pb.PipelineStageEvent.CONTROL, pb.PipelineStageEvent.ENTER),
    Step.ENDED: (pb.PipelineStageEvent.CONTROL, pb.PipelineStageEvent.EXIT),
    Step.DEPARSER: (pb.PipelineStageEvent.DEPARSER, pb.PipelineStageEvent.ENTER),
    Step.DEPARSED: (pb.PipelineStageEvent.DEPARSER, pb.PipelineStageEvent.EXIT),
}
_NAMES: Final = {pb.PipelineStageEvent.PARSER: "parser", pb.PipelineStageEvent.DEPARSER: "deparser"}


def messages(trace: PacketTrace) -> Iterator[pb.PacketTrace]:
    """Yield BMv2's message for each copy of a packet."""
    ordered = sorted(trace.events, key=lambda event: event.copy)
    for _, events in groupby(ordered, key=lambda event: event.copy):
        made = pb.PacketTrace(input=pb.InputPacket(packet_id=trace.number, ingress_port=trace.port))
        for event in events:
            _add(made.root, event)
        yield made


def _add(root: pb.TraceTree, event: Event) -> None:
    values: dict[str, Any] = event.values
    if event.step in _STAGES:
        kind, direction = _STAGES[event.step]
        stage = root.events.add().pipeline_stage
        stage.stage_name, stage.stage_kind, stage.direction = event.name or _NAMES.get(kind, ""), kind, direction
    elif event.step is Step.SENT:
        root.transmit.egress_port, root.transmit.packet_size = values["port"], values["bytes"]
    elif event.step is Step.FAILED or "dropped" in values:
        root.drop.SetInParent()
