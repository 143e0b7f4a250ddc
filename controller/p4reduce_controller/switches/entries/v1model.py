"""Which P4Runtime entries a job's grant needs, and the switch's own, by the names of the switch's program.

Only `admission` differs on Tofino (tofino.py).
"""

from __future__ import annotations

from p4reduce_controller.config import SwitchConfig
from p4reduce_controller.registry.hello import Address
from p4reduce_controller.registry.job import Grant
from p4reduce_controller.switches.program_names import PARENT_INSTANCE, TO_PARENT, P4Names
from p4reduce_runtime.p4runtime.entries import MulticastGroup, TableEntry

_FIRST_JOB_GROUP = 256
_FIRST_PARENT_GROUP = 512


def switch_address(switch: SwitchConfig, names: P4Names) -> list[TableEntry]:
    """The entries that make the switch answer for its own addresses, and drop what claims to come from them."""
    own = {switch.ip_value: switch.mac_value}
    own.setdefault(switch.trunk_ip_value, switch.trunk_mac_value)
    macs = sorted({switch.mac_value, switch.trunk_mac_value})
    return [
        *(
            TableEntry(names.switch_address, {"target_ip": ip}, names.is_switch, {"mac": mac})
            for ip, mac in own.items()
        ),
        *(TableEntry(names.own_ip, {"source_ip": ip}, names.claims_ip) for ip in own),
        *(TableEntry(names.own_mac, {"src_mac": mac}, names.claims_mac) for mac in macs),
    ]


def draws_mark(draws: int, names: P4Names) -> TableEntry:
    """The entry that keeps how many epochs were drawn for the switch: in the place of a secret, since 64 bits wide.

    No frame meets it, since no job has the number 0. P4Runtime writes and reads entries on every target, registers not.
    """
    addresses = dict.fromkeys(("dst_mac", "dst_ip", "dst_port", "src_mac", "src_ip"), 0)
    return TableEntry(names.job_member, {"job": 0, "rank": 0}, names.address_to, {**addresses, "secret": draws})


def admission(grant: Grant, names: P4Names) -> list[TableEntry]:
    """The entries that admit each child of a job, and its parent: by addresses, port and secret."""
    to_parent = grant.parent is not None
    of_job = {"slot_count": grant.slots.count, "epoch": grant.epoch}
    of_children = {
        **of_job,
        "full": grant.level.full,
        "slot_base": grant.slots.base,
        TO_PARENT: int(to_parent),
        "group": parent_group_number(grant.job_id) if to_parent else group_number(grant.job_id),
    }
    entries = [
        TableEntry(names.admit, place, names.admit_rank, {"rank_bit": 1 << bit, **of_children})
        for bit, place in enumerate(places(grant))
    ]
    if grant.parent is not None:
        place = place_of(grant.job_id, grant.parent.address, grant.parent.secret)
        answers = {**of_job, "group": group_number(grant.job_id)}
        entries.append(TableEntry(names.admit, place, names.admit_parent, answers))
    return entries


def places(grant: Grant) -> list[dict[str, int]]:
    """A child's bit -> the match of its entries in `admit`: port and addresses of its frames, and its secret."""
    return [place_of(grant.job_id, child.address, child.secret) for child in grant.children]


def place_of(job: int, address: Address, secret: int) -> dict[str, int]:
    """Return the match in `admit` of a child's or the parent's frames: their port and addresses, and the secret."""
    return {
        "ingress_port": address.ingress_port,
        "ipv4_src": address.ip,
        "udp_src_port": address.udp_port,
        "job": job,
        "secret": secret,
    }


def members(grant: Grant, switch: SwitchConfig, names: P4Names) -> list[TableEntry]:
    """The entries that address a frame to each child and to the parent; other switches know this one by its trunk."""
    to_rank = {"src_mac": switch.mac_value, "src_ip": switch.ip_value}
    to_switch = {"src_mac": switch.trunk_mac_value, "src_ip": switch.trunk_ip_value}
    targets = [
        (bit, child.address, child.secret, to_switch if child.switch else to_rank)
        for bit, child in enumerate(grant.children)
    ]
    if grant.parent is not None:
        targets.append((PARENT_INSTANCE, grant.parent.address, grant.parent.secret, to_switch))
    return [
        TableEntry(
            table=names.job_member,
            match={"job": grant.job_id, "rank": instance},
            action=names.address_to,
            params={
                "dst_mac": address.mac,
                "dst_ip": address.ip,
                "dst_port": address.udp_port,
                **source,
                "secret": secret,
            },
        )
        for instance, address, secret, source in targets
    ]


def groups(grant: Grant) -> list[MulticastGroup]:
    """The multicast groups of a job: one replica a child, whose instance is its bit, and one to the parent."""
    replicas = tuple((child.address.ingress_port, bit) for bit, child in enumerate(grant.children))
    found = [MulticastGroup(group_number(grant.job_id), replicas)]
    if grant.parent is not None:
        uplink = (grant.parent.address.ingress_port, PARENT_INSTANCE)
        found.append(MulticastGroup(parent_group_number(grant.job_id), (uplink,)))
    return found


def group_number(job_id: int) -> int:
    """The multicast group of the children of a job id."""
    return _FIRST_JOB_GROUP + job_id


def parent_group_number(job_id: int) -> int:
    """The multicast group of the parent of a job id."""
    return _FIRST_PARENT_GROUP + job_id
