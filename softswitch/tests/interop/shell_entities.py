"""An independent P4Runtime client (p4runtime-shell) adds, reads, modifies and removes each kind of entity it has.

Runs in the shell's own environment, which has neither p4reduce nor pytest: python shell_entities.py ADDRESS PROGRAM,
where PROGRAM.json and PROGRAM.p4info.txtpb are the pipeline. Prints what it saw as JSON. The shell has no registers and
no value sets.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from p4runtime_sh import shell

I = "MainIngress."  # noqa: E741
SECOND = 1_000_000_000
seen: dict[str, list[Any]] = {}


def note(kind: str, query: Any, show: Callable[[Any], Any]) -> None:
    """Note what a query finds, or the error; default entries do not count."""
    try:
        seen.setdefault(kind, []).append([show(found) for found in query.read() if not default(found)])
    except shell.P4RuntimeException as error:
        seen[kind].append(error.grpc_error.code().name)


def default(found: Any) -> bool:
    return isinstance(found, shell.TableEntry) and found.is_default


def entry(table: str, port: int = 0, action: str = "send") -> Any:
    made = shell.TableEntry(I + table)(action=I + action) if port else shell.TableEntry(I + table)
    made.match["h.sample.key"] = "7&&&0xff" if table == "aging" else "7"
    if port:
        made.action["port"] = str(port)
    return made


def number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def port_of(message: Any) -> int:
    return number(message.params[0].value)


def cycle(kind: str, query: Any, show: Callable[[Any], Any], first: Any, second: Any) -> None:
    """Insert, modify and delete, and read after each."""
    for write in (first.insert, second.modify, second.delete):
        write()
        note(kind, query, show)


def tables() -> None:
    found: Callable[[Any], Any] = lambda one: port_of(one.action.msg())  # noqa: E731
    cycle("table", shell.TableEntry(I + "plain"), found, entry("plain", 1), entry("plain", 2))


def members_and_groups() -> None:
    paths = I + "paths"

    def member(id: int, port: int) -> Any:
        made = shell.ActionProfileMember(paths)(member_id=id, action=I + "send")
        made.action["port"] = str(port)
        return made

    def group() -> Any:
        return shell.ActionProfileGroup(paths)(group_id=3, max_size=8)

    def show() -> None:
        note("member", shell.ActionProfileMember(paths), lambda one: [one.member_id, port_of(one.action.msg())])
        note(
            "profile_group",
            shell.ActionProfileGroup(paths),
            lambda one: [
                one.group_id,
                one.max_size,
                [[m.member_id, m.weight, number(m.watch_port)] for m in one.members],
            ],
        )
        note("indirect", shell.TableEntry(I + "by_group"), lambda one: [one.member_id, one.group_id])

    for each in (member(1, 1), member(2, 2)):
        each.insert()
    group().add(1, 2).add(2, 1, watch_port=b"\x04").insert()
    by_group, by_member = entry("by_group"), entry("by_group")
    by_group.group_id, by_member.member_id = 3, 1
    by_group.insert()
    show()
    member(2, 9).modify()
    smaller = group().add(2)
    smaller.modify()
    by_member.modify()
    show()
    by_member.delete()
    smaller.delete()
    for each in (member(1, 1), member(2, 2)):
        each.delete()
    show()


def one_shots() -> None:
    def one_shot(*rows: tuple[int, int]) -> Any:
        made, actions = entry("one_shot"), shell.Oneshot(I + "one_shot")
        for port, weight in rows:
            action = shell.Action(I + "send")
            action["port"] = str(port)
            actions.add(action, weight=weight)
        made.oneshot = actions
        return made

    show: Callable[[Any], Any] = lambda one: [[a.weight, port_of(a.action.msg())] for a in one.oneshot.actions]  # noqa: E731
    cycle("one_shot", shell.TableEntry(I + "one_shot"), show, one_shot((1, 1), (2, 2)), one_shot((3, 3)))


def cells() -> None:
    counter = shell.CounterEntry(I + "seen")
    counter.index = 1
    for packets in (5, 0):
        counter.packet_count, counter.byte_count = packets, 10 * packets
        counter.modify()
        note("counter", counter, lambda one: [one.packet_count, one.byte_count])
    plain, metered = entry("plain", 1), entry("metered", 1, "measured")
    plain.insert()
    metered.insert()
    direct = shell.DirectCounterEntry(I + "hits")
    direct.table_entry = entry("plain")
    for packets in (5, 0):
        direct.packet_count, direct.byte_count = packets, 10 * packets
        direct.modify()
        note("direct_counter", direct, lambda one: [one.packet_count, one.byte_count])
    for kind, name in (("meter", "pace"), ("direct_meter", "rate")):
        meter = shell.MeterEntry(I + name) if kind == "meter" else shell.DirectMeterEntry(I + name)
        if kind == "meter":
            meter.index = 1
        else:
            meter.table_entry = entry("metered")
        for rates in ((1, 2, 3, 4), (2, 3, 4, 5), None):
            if rates is None:
                meter.clear_config()
            else:
                meter.cir, meter.cburst, meter.pir, meter.pburst = rates
            meter.modify()
            note(kind, meter, lambda one: [one.cir, one.cburst, one.pir, one.pburst])
    plain.delete()
    metered.delete()


def replication() -> None:
    replicas: Callable[[Any], Any] = lambda one: [[r.egress_port, r.instance] for r in one.replicas]  # noqa: E731
    first, second = shell.MulticastGroupEntry(5).add(1), shell.MulticastGroupEntry(5).add(2, 7)
    cycle("group", shell.MulticastGroupEntry(), replicas, first, second)
    for port in (1, 2):
        session = shell.CloneSessionEntry(6).add(port)
        session.insert()
        note("session", shell.CloneSessionEntry(), replicas)
        session.delete()
    note("session", shell.CloneSessionEntry(), replicas)


def digests() -> None:
    first, second = shell.DigestEntry("sighting_t"), shell.DigestEntry("sighting_t")
    first.max_list_size, first.ack_timeout_ns = 1, 5
    second.max_list_size, second.ack_timeout_ns = 2, 6
    query = shell.DigestEntry("sighting_t")
    cycle("digest", query, lambda one: [one.max_list_size, one.ack_timeout_ns], first, second)


def idle_timeouts() -> None:
    """BMv2 looks for idle entries once a second."""
    long, short = entry("aging", 1), entry("aging", 1)
    long.priority = short.priority = 1
    long.idle_timeout_ns, short.idle_timeout_ns = 3600 * SECOND, SECOND // 20
    long.insert()
    query = shell.TableEntry(I + "aging")
    query.time_since_last_hit  # noqa: B018  # to name it is to ask for it
    note("idle", query, lambda one: [one.idle_timeout_ns // SECOND, one._time_since_last_hit is not None])
    short.modify()
    message = shell.client.get_stream_packet("idle_timeout_notification", timeout=600)
    told = message.idle_timeout_notification.table_entry
    seen["idle_told"] = [[number(each.match[0].ternary.value), each.idle_timeout_ns] for each in told]
    short.delete()
    note("idle", shell.TableEntry(I + "aging"), lambda one: one.idle_timeout_ns)


config = shell.FwdPipeConfig(f"{sys.argv[2]}.p4info.txtpb", f"{sys.argv[2]}.json")
shell.setup(device_id=1, grpc_addr=sys.argv[1], election_id=(0, 1), config=config, verbose=False)
for part in (tables, members_and_groups, one_shots, cells, replication, digests, idle_timeouts):
    part()
shell.teardown()
print(json.dumps(seen))
