"""An independent P4Runtime client (finsy) adds, reads, modifies and removes each kind of entity; prints what it saw.

Runs in finsy's own environment, which has neither p4reduce nor pytest: python finsy_entities.py ADDRESS PROGRAM, where
PROGRAM.json and PROGRAM.p4info.txtpb are the pipeline.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from finsy import (
    P4ActionProfileGroup,
    P4ActionProfileMember,
    P4ClientError,
    P4CloneSessionEntry,
    P4CounterData,
    P4CounterEntry,
    P4DigestEntry,
    P4DirectCounterEntry,
    P4DirectMeterEntry,
    P4IndirectAction,
    P4Member,
    P4MeterConfig,
    P4MeterEntry,
    P4MulticastGroupEntry,
    P4RegisterEntry,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
    P4ValueSetEntry,
    Switch,
    SwitchOptions,
)
from finsy.p4entity import P4ValueSetMember

I = "MainIngress."  # noqa: E741
SECOND = 1_000_000_000


def send(port: int) -> P4TableAction:
    return P4TableAction(I + "send", port=port)


def entry(table: str, action: Any = None, priority: int = 0, **fields: Any) -> P4TableEntry:
    match = P4TableMatch(key=(7, 0xFF) if table == "aging" else 7)
    return P4TableEntry(I + table, match=match, action=action, priority=priority, **fields)


def rates(config: P4MeterConfig | None) -> list[int] | None:
    return config and [config.cir, config.cburst, config.pir, config.pburst]


def action_of(found: P4TableEntry) -> Any:
    action = found.action
    if isinstance(action, P4TableAction):
        return [action.name, action.args]
    assert isinstance(action, P4IndirectAction)
    if action.action_set is not None:
        return [[weighted[0], weighted[1].args] for weighted in action.action_set]
    return {"member": action.member_id, "group": action.group_id}


class Session:
    """Collects what is seen under a name for each kind of entity."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.seen: dict[str, list[Any]] = {}

    async def read(self, kind: str, query: Any, show: Callable[[Any], Any]) -> None:
        """Note what a query finds, or the error; default entries do not count."""
        noted = self.seen.setdefault(kind, [])
        try:
            found = [each async for each in self.switch.read(query) if not getattr(each, "is_default_action", False)]
        except P4ClientError as error:
            noted.append(error.code.name)
        else:
            noted.append([show(each) for each in found])

    async def cycle(self, kind: str, query: Any, show: Callable[[Any], Any], first: Any, second: Any) -> None:
        """Insert, modify and delete, and read after each."""
        for write, written in ((self.switch.insert, first), (self.switch.modify, second), (self.switch.delete, second)):
            await write([written])
            await self.read(kind, query, show)

    async def modify(self, kind: str, query: Any, show: Callable[[Any], Any], *entities: Any) -> None:
        """Modify what is always there, and read after each."""
        for entity in entities:
            try:
                await self.switch.modify([entity])
                await self.read(kind, query, show)
            except P4ClientError as error:
                codes = {detail.canonical_code.name for detail in error.details.values()}
                self.seen[kind] = [*self.seen.get(kind, []), *sorted(codes or {error.code.name})]


async def session(address: str, program: Path) -> dict[str, Any]:
    options = SwitchOptions(
        p4info=program.with_suffix(".p4info.txtpb"), p4blob=program.with_suffix(".json"), device_id=1, fail_fast=True
    )
    async with Switch("entities", address, options) as switch:
        run = Session(switch)
        await run.cycle("table", P4TableEntry(I + "plain"), action_of, entry("plain", send(1)), entry("plain", send(2)))
        await refused_in_a_batch(run)
        await members_and_groups(run)
        await one_shots(run)
        await cells(run)
        await replication(run)
        await run.cycle(
            "digest",
            P4DigestEntry("sighting_t"),
            lambda digest: [digest.max_list_size, digest.ack_timeout_ns],
            P4DigestEntry("sighting_t", max_list_size=1, ack_timeout_ns=5),
            P4DigestEntry("sighting_t", max_list_size=2, ack_timeout_ns=6),
        )
        await idle_timeouts(run)
        return run.seen


async def refused_in_a_batch(run: Session) -> None:
    try:
        await run.switch.insert([entry("plain", send(1)), entry("plain", send(2))])
    except P4ClientError as error:
        run.seen["refused"] = [[index, detail.canonical_code.name] for index, detail in error.details.items()]
    await run.switch.delete([entry("plain")])


async def replication(run: Session) -> None:
    await run.cycle(
        "group",
        P4MulticastGroupEntry(),
        lambda group: [group.multicast_group_id, group.replicas_str()],
        P4MulticastGroupEntry(5, replicas=(1,)),
        P4MulticastGroupEntry(5, replicas=((2, 7),)),
    )
    first, second = (P4CloneSessionEntry(6, replicas=(port,)) for port in (1, 2))
    await run.switch.insert([first])
    await run.read("session", P4CloneSessionEntry(), lambda found: [found.session_id, found.replicas_str()])
    await run.switch.delete([first])
    await run.switch.insert([second])
    await run.read("session", P4CloneSessionEntry(), lambda found: [found.session_id, found.replicas_str()])
    await run.switch.delete([second])
    await run.read("session", P4CloneSessionEntry(), lambda found: [found.session_id, found.replicas_str()])


async def members_and_groups(run: Session) -> None:
    paths = I + "paths"
    members = [P4ActionProfileMember(paths, member_id=id, action=send(id)) for id in (1, 2)]
    changed = P4ActionProfileMember(paths, member_id=2, action=send(9))
    group = P4ActionProfileGroup(
        paths, group_id=3, max_size=8, members=[P4Member(1, weight=2), P4Member(2, weight=(1, 4))]
    )
    smaller = P4ActionProfileGroup(paths, group_id=3, max_size=8, members=[P4Member(2, weight=1)])

    async def show() -> None:
        await run.read("member", P4ActionProfileMember(paths), lambda found: [found.member_id, found.action.args])
        await run.read(
            "profile_group",
            P4ActionProfileGroup(paths),
            lambda found: [found.group_id, found.max_size, [[m.member_id, m.weight] for m in found.members or ()]],
        )
        await run.read("indirect", P4TableEntry(I + "by_group"), action_of)

    await run.switch.insert(members)
    await run.switch.insert([group])
    await run.switch.insert([entry("by_group", P4IndirectAction(group_id=3))])
    await show()
    await run.switch.modify([changed])
    await run.switch.modify([smaller])
    await run.switch.modify([entry("by_group", P4IndirectAction(member_id=1))])
    await show()
    await run.switch.delete([entry("by_group")])
    await run.switch.delete([smaller])
    await run.switch.delete(members)
    await show()


async def one_shots(run: Session) -> None:
    first = P4IndirectAction([(1, send(1)), (2, send(2))])
    second = P4IndirectAction([(3, send(3))])
    query = P4TableEntry(I + "one_shot")
    await run.cycle("one_shot", query, action_of, entry("one_shot", first), entry("one_shot", second))


async def cells(run: Session) -> None:
    await run.modify(
        "counter",
        P4CounterEntry(I + "seen", index=1),
        lambda found: [found.packet_count, found.byte_count],
        P4CounterEntry(I + "seen", index=1, data=P4CounterData(packet_count=5, byte_count=50)),
        P4CounterEntry(I + "seen", index=1, data=P4CounterData(packet_count=0, byte_count=0)),
    )
    first, second = P4MeterConfig(cir=1, cburst=2, pir=3, pburst=4), P4MeterConfig(cir=2, cburst=3, pir=4, pburst=5)
    await run.modify(
        "meter",
        P4MeterEntry(I + "pace", index=1),
        lambda found: rates(found.config),
        *(P4MeterEntry(I + "pace", index=1, config=config) for config in (first, second, None)),
    )
    measured = P4TableAction(I + "measured", port=1)
    await run.switch.insert([entry("plain", send(1)), entry("metered", measured, meter_config=second)])
    asked = P4TableEntry(I + "metered", meter_config=P4MeterConfig(cir=0, cburst=0, pir=0, pburst=0))
    await run.read("rates_of_an_entry", asked, lambda found: rates(found.meter_config))
    counted = entry("plain", send(1))
    await run.modify(
        "direct_counter",
        P4DirectCounterEntry(table_entry=P4TableEntry(I + "plain")),
        lambda found: [found.packet_count, found.byte_count],
        P4DirectCounterEntry(table_entry=counted, data=P4CounterData(packet_count=5, byte_count=50)),
        P4DirectCounterEntry(table_entry=counted, data=P4CounterData(packet_count=0, byte_count=0)),
    )
    await run.modify(
        "direct_meter",
        P4DirectMeterEntry(table_entry=P4TableEntry(I + "metered")),
        lambda found: rates(found.config),
        *(
            P4DirectMeterEntry(table_entry=entry("metered", measured), config=config)
            for config in (first, second, None)
        ),
    )
    await run.switch.delete([entry("plain"), entry("metered")])
    await run.modify(
        "register",
        P4RegisterEntry(I + "memory", index=2),
        lambda found: found.data,
        *(P4RegisterEntry(I + "memory", index=2, data=data) for data in (0xFFFFFFFF, 0)),
    )
    sets: list[list[int]] = [[3, 4], [5], []]
    await run.modify(
        "value_set",
        P4ValueSetEntry("Sample.kinds", members=[]),
        lambda found: [member.value for member in found.members],
        *(P4ValueSetEntry("Sample.kinds", members=[P4ValueSetMember(value) for value in values]) for values in sets),
    )


async def idle_timeouts(run: Session) -> None:
    """BMv2 looks for idle entries once a second."""
    told = run.switch.read_idle_timeouts()
    waiting = asyncio.ensure_future(anext(told))
    await asyncio.sleep(0)
    await run.switch.insert([entry("aging", send(1), 1, idle_timeout_ns=3600 * SECOND)])
    asked = P4TableEntry(I + "aging", time_since_last_hit=0)
    await run.read(
        "idle", asked, lambda found: [found.idle_timeout_ns // SECOND, found.time_since_last_hit is not None]
    )
    await run.switch.modify([entry("aging", send(1), 1, idle_timeout_ns=SECOND // 20)])
    notification = await asyncio.wait_for(waiting, 600)
    run.seen["idle_told"] = [[found.match["key"], found.idle_timeout_ns] for found in notification]
    await told.aclose()
    await run.switch.delete([entry("aging", priority=1)])
    await run.read("idle", P4TableEntry(I + "aging"), action_of)


print(json.dumps(asyncio.run(session(sys.argv[1], Path(sys.argv[2])))))
