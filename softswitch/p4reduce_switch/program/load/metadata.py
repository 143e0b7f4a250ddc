"""The slots of the standard metadata, which the target reads and writes."""

from __future__ import annotations

from p4reduce_switch.program.errors import InvalidProgramError
from p4reduce_switch.program.ir.places import FieldRef
from p4reduce_switch.program.ir.program import StandardMetadata
from p4reduce_switch.program.load.layout import Layout

# simple_switch's names, with their widths in v1model; field_aliases map them to the program's fields.
REQUIRED = {
    "egress_spec": ("standard_metadata.egress_spec", 9),
    "egress_port": ("standard_metadata.egress_port", 9),
    "instance_type": ("standard_metadata.instance_type", 32),
    "ingress_port": ("standard_metadata.ingress_port", 9),
    "packet_length": ("standard_metadata.packet_length", 32),
}
OPTIONAL = {
    "mcast_grp": ("intrinsic_metadata.mcast_grp", 16),
    "egress_rid": ("intrinsic_metadata.egress_rid", 16),
    "parser_error": ("standard_metadata.parser_error", 32),
    "checksum_error": ("standard_metadata.checksum_error", 1),
    "ingress_time": ("intrinsic_metadata.ingress_global_timestamp", 48),
    "egress_time": ("intrinsic_metadata.egress_global_timestamp", 48),
    "enqueue_time": ("queueing_metadata.enq_timestamp", 32),
    "enqueue_depth": ("queueing_metadata.enq_qdepth", 16),
    "dequeue_delay": ("queueing_metadata.deq_timedelta", 32),
    "dequeue_depth": ("queueing_metadata.deq_qdepth", 16),
    "queue": ("queueing_metadata.qid", 3),
    "priority": ("intrinsic_metadata.priority", 3),
}


def standard_metadata(layout: Layout) -> StandardMetadata:
    """Return the slots; InvalidProgramError if a field that v1model requires is missing, or a field is too narrow."""
    required: dict[str, int] = {}
    for attribute, (name, bits) in REQUIRED.items():
        field = layout.target_field(name)
        if field is None:
            raise InvalidProgramError(f"the program has no {name}: it is not a v1model program")
        required[attribute] = _slot(field, name, bits)
    optional: dict[str, int | None] = {}
    for attribute, (name, bits) in OPTIONAL.items():
        field = layout.target_field(name)
        optional[attribute] = None if field is None else _slot(field, name, bits)
    return StandardMetadata(**required, **optional)  # type: ignore[arg-type]


def _slot(field: FieldRef, name: str, bits: int) -> int:
    kind, slot = field.type, field.slot
    assert slot is not None
    if kind.varbit or kind.signed or kind.width < bits:
        raise InvalidProgramError(f"{name} is not an unsigned field of {bits} bits: it is not a v1model program")
    return slot
