"""Where the embedded switch does not have to answer as BMv2 does, and why. Tests fail when an entry is not needed."""

from __future__ import annotations

_REPLICAS = (
    "P4Runtime leaves the order of a group's replicas open. BMv2's P4Runtime server (PI) goes through them by a hash "
    "table of their instances, the embedded switch in the order in which the controller gave them. It shows only "
    "where several replicas leave by one port: these frames are compared as a set."
)

ANY_ORDER = {"multicast_rids": _REPLICAS, "p4reduce_small_shared_ports": _REPLICAS}
"""Cases whose frames for one step and port may come in any order."""

DIFFERENT = {
    "clone_truncated": (
        "PI does not implement packet_length_bytes of clone sessions: BMv2 refuses the session and makes no copies. "
        "The embedded switch cuts the copies, as the P4Runtime specification wants."
    ),
    "initial_entries": (
        "BMv2 lets no client change a table whose entries the program declares, const or not. On the embedded switch "
        "only const ones stay for good, as the P4Runtime specification wants."
    ),
    "signed_register_cell": (
        "BMv2's registers hold positive numbers: a negative int<8> comes back as one of 128 and more, which is not "
        "below 0. On the embedded switch it comes back as it was written, as P4 wants."
    ),
}
"""Cases in which the embedded switch answers otherwise."""
