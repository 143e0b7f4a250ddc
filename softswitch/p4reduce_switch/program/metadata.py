"""Which slots hold the metadata that the target itself reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import InvalidProgram
from .layout import Layout

# Names that simple_switch uses; the program's field_aliases lead them to its own fields.
REQUIRED = {
    "egress_spec": "standard_metadata.egress_spec",
    "egress_port": "standard_metadata.egress_port",
    "instance_type": "standard_metadata.instance_type",
    "ingress_port": "standard_metadata.ingress_port",
    "packet_length": "standard_metadata.packet_length",
}
OPTIONAL = {
    "mcast_grp": "intrinsic_metadata.mcast_grp",
    "egress_rid": "intrinsic_metadata.egress_rid",
    "parser_error": "standard_metadata.parser_error",
    "checksum_error": "standard_metadata.checksum_error",
}
# Filled only when the program reads them. There is no queue: depths and times in it are always 0.
TIMES = {
    "ingress_time": "intrinsic_metadata.ingress_global_timestamp",
    "egress_time": "intrinsic_metadata.egress_global_timestamp",
    "enqueue_time": "queueing_metadata.enq_timestamp",
}


@dataclass(frozen=True)
class StandardMetadata:
    """Slots; -1 for a field that the program does not have, or for a time that it does not read."""

    egress_spec: int
    egress_port: int
    instance_type: int
    ingress_port: int
    packet_length: int
    mcast_grp: int
    egress_rid: int
    parser_error: int
    checksum_error: int
    ingress_time: int
    egress_time: int
    enqueue_time: int

    @classmethod
    def find(cls, layout: Layout) -> StandardMetadata:
        """Look all of them up; InvalidProgram when one that v1model requires is missing."""
        found: dict[str, int] = {}
        for attribute, name in {**REQUIRED, **OPTIONAL, **TIMES}.items():
            place = layout.find(name)
            found[attribute] = -1 if place is None else place[0]
            if attribute in REQUIRED and place is None:
                raise InvalidProgram(f"the program has no {name}: it is not a v1model program")
            if attribute in TIMES and found[attribute] not in layout.used:
                found[attribute] = -1
        return cls(**found)
