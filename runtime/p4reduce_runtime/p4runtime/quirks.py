"""Where P4Runtime targets differ from the spec, or from each other, and what is done about it.

What client and server know of particular targets is here. Differences that need nothing done:

- BMv2 (its P4Runtime front end, PI) makes the connected controller with the largest election id primary. The spec and
  the software switch make no client primary after a primary has left, until one with an id as large as its arbitrates.
- BMv2 answers INVALID_ARGUMENT where the spec has OUT_OF_RANGE for values that are too wide, and UNKNOWN for most
  errors of the target itself, such as a full table or a counter index that is too large.
- BMv2 refuses clone sessions with a packet length ("Error when creating clone session in target").
- BMv2 takes multicast group ids below 32768 only; those above hold its clone sessions.
- BMv2 neither reads nor writes registers and parser value sets through P4Runtime.
- BMv2 shows a member once for each unit of its largest weight in a group, and all watch ports of a group as that of its
  last member. A group that is refused stays, empty.
- BMv2 ends a stream with INVALID_ARGUMENT when its election id is in use; while it has not noticed that an old
  connection is closed, a controller that reconnects is refused so, and has to try again.

Two differences have to be taken care of. One is the width of byte strings (`byte_string`). And BMv2 keeps clone
sessions and multicast groups when a pipeline is set, and its P4Runtime server forgets them. They make copies as before,
can be neither read nor deleted, and a new one with the same id adds its copies to theirs. So they have to be deleted
before the pipeline is set.
"""

from __future__ import annotations

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import bytestrings


def set_replica_port(replica: p4r.Replica, port: int) -> None:
    """Writes a replica's port into the old 32-bit field.

    P4Runtime 1.4 brought the byte string `port` and deprecated `egress_port`. Targets with an older PI know only the
    old field, every target still takes it, and PI refuses port 0 in the new one.
    """
    replica.egress_port = port


def byte_string(value: int, bitwidth: int) -> bytes:
    """Return a value as a client sends it: of the field's whole width. ValueError when it does not fit.

    The PI of a Tofino's drivers takes no shorter one, and every receiver has to take leading zeros (P4Runtime
    specification, "Bytestrings"). Servers send the canonical string, without them.
    """
    return bytestrings.encode(value, bitwidth).rjust((bitwidth + 7) // 8, b"\0")


def replica_port(replica: p4r.Replica) -> int:
    """A replica's port, whichever of the two fields carries it."""
    if replica.WhichOneof("port_kind") == "port":
        return bytestrings.decode(replica.port)
    return int(replica.egress_port)


def is_no_pipeline(config: p4r.ForwardingPipelineConfig) -> bool:
    """Whether GetForwardingPipelineConfig answered "no program".

    The spec has an unset config for that. BMv2 answers FAILED_PRECONDITION until the first attempt to set a
    program, and after an attempt that failed an empty config.
    """
    return not config.HasField("p4info")
