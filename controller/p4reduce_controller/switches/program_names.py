"""The names of the P4 programs' objects, as their P4Info has them: one P4Names for each target.

The pipeline selects one (pipeline.py). Match fields and action parameters are named where entries are made
(entries/v1model.py, entries/tofino.py, mac_table.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class P4Names:
    """The objects of one target's program that the controller writes and reads. Most are the same for every target."""

    mac_learn: str
    """Digest of an unknown (MAC address, port)."""
    drops: str
    """Counter by drop reason."""
    job_counters: Mapping[str, str]
    """Counters by job id: their names in the job service's statistics, and in the program."""
    switch_address: str = "MainIngress.address.switch_address"
    """Table: the switch's own IP address; `is_switch` is its action."""
    is_switch: str = "MainIngress.address.is_switch"
    own_ip: str = "MainIngress.address.own_ip"
    """Table: IP addresses that only the switch may send from; `claims_ip` is its action."""
    claims_ip: str = "MainIngress.address.claims_ip"
    own_mac: str = "MainIngress.address.own_mac"
    """Table: MAC addresses that only the switch may send from; `claims_mac` is its action."""
    claims_mac: str = "MainIngress.address.claims_mac"
    admit: str = "MainIngress.admission.admit"
    """Table: which frames of a job are taken: `admit_rank` is its action for those of children, ranks or switches,
    `admit_parent` for those of the parent."""
    admit_rank: str = "MainIngress.admission.admit_rank"
    admit_parent: str = "MainIngress.admission.admit_parent"
    job_member: str = "MainEgress.address_reply.job_member"
    """Table: the addresses of each child of a job and of the parent; `address_to` is its action."""
    address_to: str = "MainEgress.address_reply.address_to"
    mac_table: str = "MainIngress.forwarding.mac_table"
    """Table: the port of a MAC address; `forward` is its action."""
    forward: str = "MainIngress.forwarding.forward"
    learned: str = "MainIngress.forwarding.learned"
    """Table: the addresses not to be reported again; `known` is its action."""
    known: str = "MainIngress.forwarding.known"
    hello_rate: str = "MainIngress.punt.hello_rate"
    """Meter by ingress port: how many HELLOs a second go to the controller. Without rates, all."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Every table that the controller writes, admission first: a reply needs the addresses."""
        own = (self.switch_address, self.own_ip, self.own_mac)
        return self.admit, self.job_member, *own, self.mac_table, self.learned


V1MODEL: Final = P4Names(
    mac_learn="mac_learn_t",
    drops="MainIngress.drops",
    job_counters={
        "contributions": "MainIngress.contributions",
        "duplicates": "MainIngress.duplicates",
        "results": "MainIngress.results",
        "pendings": "MainIngress.pendings",
        "parent_answers": "MainIngress.parent_answers",
    },
)

TOFINO: Final = P4Names(
    mac_learn="MainDeparser.mac_learn",
    drops="MainIngress.dropping.drops",
    job_counters={
        "contributions": "MainIngress.reply.contributions",
        "duplicates": "MainIngress.reply.duplicates",
        "results": "MainIngress.reply.results",
        "pendings": "MainIngress.reply.pendings",
        "parent_answers": "MainIngress.pass_down.parent_answers",
    },
)
"""The names in the P4Info with P4Runtime's own counters, meters, registers and digests, of `make p4-tofino`."""

FLOOD_GROUP: Final = 1
"""Multicast group of unknown destinations, as headers.p4 of each target has it."""
PARENT_INSTANCE: Final = 32
"""Instance of the one replica that goes to the parent, and its number in `job_member`; children have 0 to 31."""
TO_PARENT: Final = "to_parent"
"""The parameter of `admit_rank` with which a switch sums for its parent."""
