"""An independent P4Runtime client (finsy) sets the pipeline, writes, reads; prints what it saw as JSON.

Runs in finsy's own environment, which has neither p4reduce nor pytest: python finsy_session.py ADDRESS PIPELINE_DIR
"""

import asyncio
import json
import sys
from pathlib import Path

from finsy import (
    P4ClientError,
    P4CounterEntry,
    P4DigestEntry,
    P4MulticastGroupEntry,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
    Switch,
    SwitchOptions,
)

SWITCH_ADDRESS = "MainIngress.address.switch_address"
MAC_TABLE = "MainIngress.forwarding.mac_table"


def own_address(mac: int) -> P4TableEntry:
    return P4TableEntry(
        SWITCH_ADDRESS,
        match=P4TableMatch(target_ip=0x0A000001),
        action=P4TableAction("MainIngress.address.is_switch", mac=mac),
    )


def mac_entry(mac: int, port: int) -> P4TableEntry:
    action = P4TableAction("MainIngress.forwarding.forward", port=port)
    return P4TableEntry(MAC_TABLE, match=P4TableMatch(dst_mac=mac), action=action)


async def session(address: str, pipeline: Path) -> dict[str, object]:
    options = SwitchOptions(
        p4info=pipeline / "p4reduce.p4info.txtpb", p4blob=pipeline / "p4reduce.json", device_id=1, fail_fast=True
    )
    seen: dict[str, object] = {}
    async with Switch("p4reduce", address, options) as switch:
        seen["primary"] = switch.is_primary
        await switch.insert([own_address(0x020000000001), mac_entry(0xA, 1), mac_entry(0xB, 2)])
        await switch.modify([own_address(0x020000000002)])
        await switch.delete([mac_entry(0xB, 2)])
        seen["addresses"] = [
            (entry.match["target_ip"], entry.action.args["mac"])
            async for entry in switch.read(P4TableEntry(SWITCH_ADDRESS))
            if not entry.is_default_action and entry.match
        ]
        seen["macs"] = [
            (entry.match["dst_mac"], entry.action.args["port"])
            async for entry in switch.read(P4TableEntry(MAC_TABLE))
            if not entry.is_default_action and entry.match
        ]
        await switch.insert([P4MulticastGroupEntry(5, replicas=(1, (2, 7)))])
        seen["groups"] = [
            (group.multicast_group_id, sorted(group.replicas_str().split()))
            async for group in switch.read(P4MulticastGroupEntry())
        ]
        await switch.insert([P4DigestEntry("mac_learn_t", max_list_size=1, max_timeout_ns=0, ack_timeout_ns=10**9)])
        seen["counter"] = [
            (cell.index, cell.packet_count, cell.byte_count)
            async for cell in switch.read(P4CounterEntry("MainIngress.drops", index=3))
        ]
        try:
            await switch.insert([mac_entry(0xC, 1), mac_entry(0xA, 1)])
        except P4ClientError as error:
            seen["failed"] = [(index, detail.canonical_code.name) for index, detail in error.details.items()]
    return seen


print(json.dumps(asyncio.run(session(sys.argv[1], Path(sys.argv[2])))))
