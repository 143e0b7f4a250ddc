"""Which P4Runtime entries a job's grant needs, and the switch's own, by the names of the switch's program.

`admission` is v1model's; Tofino's is in tofino_entries.py.
"""

from __future__ import annotations

import ipaddress

from p4reduce_contracts.p4runtime.entries import MulticastGroup, TableEntry
from p4reduce_controller.config import SwitchConfig, mac_value
from p4reduce_controller.jobs.model import Grant
from p4reduce_controller.p4names import P4Names

_FIRST_JOB_GROUP = 256


def switch_address(switch: SwitchConfig, names: P4Names) -> list[TableEntry]:
    """The entries that make the switch answer for its own addresses, and drop what claims to come from them."""
    ip, mac = int(ipaddress.IPv4Address(switch.address)), mac_value(switch.mac)
    return [
        TableEntry(names.switch_address, {"target_ip": ip}, names.is_switch, {"mac": mac}),
        TableEntry(names.own_ip, {"source_ip": ip}, names.claims_ip),
        TableEntry(names.own_mac, {"src_mac": mac}, names.claims_mac),
    ]


def admission(grant: Grant, names: P4Names) -> list[TableEntry]:
    """The entries that admit the ranks of a job, one for each: addresses, port and secret give the rank."""
    full = (1 << grant.world_size) - 1
    return [
        TableEntry(
            table=names.admit,
            match=place,
            action=names.admit_rank,
            params={
                "rank_bit": 1 << rank,
                "full": full,
                "slot_base": grant.slots.base,
                "slot_count": grant.slots.count,
                "epoch": grant.epoch,
                "group": group_number(grant.job_id),
                "to_parent": 0,
            },
        )
        for rank, place in enumerate(places(grant))
    ]


def places(grant: Grant) -> list[dict[str, int]]:
    """By rank: where its frames come from and what they say, the match of its entries in `admit`."""
    return [
        {
            "ingress_port": address.ingress_port,
            "ipv4_src": address.ip,
            "udp_src_port": address.udp_port,
            "job": grant.job_id,
            "secret": secret,
        }
        for address, secret in zip(grant.addresses, grant.secrets, strict=True)
    ]


def members(grant: Grant, switch: SwitchConfig, names: P4Names) -> list[TableEntry]:
    """The entries that address a reply to each rank."""
    return [
        TableEntry(
            table=names.job_member,
            match={"job": grant.job_id, "rank": rank},
            action=names.address_to,
            params={
                "dst_mac": address.mac,
                "dst_ip": address.ip,
                "dst_port": address.udp_port,
                "src_mac": mac_value(switch.mac),
                "src_ip": int(ipaddress.IPv4Address(switch.address)),
                "secret": secret,
            },
        )
        for rank, (address, secret) in enumerate(zip(grant.addresses, grant.secrets, strict=True))
    ]


def group(grant: Grant) -> MulticastGroup:
    """The multicast group of a job: one replica a rank, whose instance is the rank."""
    replicas = tuple((address.ingress_port, rank) for rank, address in enumerate(grant.addresses))
    return MulticastGroup(group_number(grant.job_id), replicas)


def group_number(job_id: int) -> int:
    """The multicast group of a job id."""
    return _FIRST_JOB_GROUP + job_id
