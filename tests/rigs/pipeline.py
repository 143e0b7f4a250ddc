"""The compiled program with a job admitted, driven frame by frame without a controller."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from p4reduce_contracts import artifacts
from p4reduce_contracts.wire.checksum import internet_checksum
from p4reduce_controller.config import HostAddress, MacAddress, SwitchConfig
from p4reduce_controller.registry.hello import Address
from p4reduce_controller.registry.job import Child, Grant, Parent
from p4reduce_controller.registry.slots import SlotRange
from p4reduce_controller.switches.entries import v1model
from p4reduce_controller.switches.program_names import FLOOD_GROUP, V1MODEL
from p4reduce_runtime.p4runtime.entries import TableEntry
from p4reduce_switch.program import Compiled, Program, Replica, compile_program
from rigs import wire
from rigs.entries import insert
from rigs.secret import rank_secret

ARTIFACTS = Path(__file__).resolve().parents[2] / "p4src/artifacts/v1model"

SWITCH_MAC, SWITCH_IP = 0x020000000001, 0x0A000001
JOB, EPOCH, SLOT_COUNT, GROUP = 7, 9, 4, 256 + 7
SLOT_BASE = 2
UPLINK_PORT = 500
CPU_PORT = 510
SECRET_AT = wire.BASE_BYTES


def rank_mac(rank: int) -> int:
    return 0x020000000100 + rank


def rank_ip(rank: int) -> int:
    return 0x0A000100 + rank


def rank_udp_port(rank: int) -> int:
    return 40000 + rank


def rank_port(rank: int) -> int:
    return 1 + rank


def ipv4_header(
    src: int, dst: int, payload_bytes: int, protocol: int = 17, fragment: int = 0x4000, ttl: int = 64
) -> bytes:
    head = b"\x45\0" + (20 + payload_bytes).to_bytes(2, "big") + b"\0\0" + fragment.to_bytes(2, "big")
    head += bytes((ttl, protocol))
    tail = src.to_bytes(4, "big") + dst.to_bytes(4, "big")
    return head + internet_checksum(head + tail).to_bytes(2, "big") + tail


@dataclass(frozen=True)
class Host:
    """The addresses of a switch's child or parent, and the secret in the frames between the two."""

    mac: int
    ip: int
    udp_port: int
    secret: int


def rank_host(rank: int, secret: int) -> Host:
    return Host(rank_mac(rank), rank_ip(rank), rank_udp_port(rank), secret)


def switch_host(number: int, secret: int) -> Host:
    """Switch `number` of a tree; a single one is number 0."""
    return Host(SWITCH_MAC + number, SWITCH_IP + number, wire.AGGREGATION_PORT, secret)


PARENT = switch_host(9, 0xF1E2D3C4B5A69788)
"""The parent of a leaf."""


def switch_config(number: int = 0) -> SwitchConfig:
    own = switch_host(number, 0)
    mac = MacAddress(own.mac.to_bytes(6, "big").hex(":"))
    return SwitchConfig(address=HostAddress(str(ipaddress.IPv4Address(own.ip))), mac=mac)


def grant_of(
    children: Sequence[Host],
    parent: Host | None = None,
    epoch: int = EPOCH,
    slot_base: int = SLOT_BASE,
    slot_count: int = SLOT_COUNT,
    port_of: Callable[[int], int] = rank_port,
) -> Grant:
    """The job's grant at a switch, whose children are at the ports that `port_of` gives, its parent at UPLINK_PORT."""

    def at(port: int, host: Host) -> Address:
        return Address(port, host.mac, host.ip, host.udp_port)

    known = tuple(Child(at(port_of(bit), host), host.secret, (bit,)) for bit, host in enumerate(children))
    above = None if parent is None else Parent("root", at(UPLINK_PORT, parent), parent.secret)
    return Grant(JOB, "rig", epoch, SlotRange(slot_base, slot_count), known, above)


def from_host(
    host: Host, payload: bytes, number: int = 0, dst_port: int = wire.AGGREGATION_PORT, dst_ip: int | None = None
) -> bytes:
    """Return the frame that `host` sends to switch `number`: Ethernet, IPv4 and UDP around `payload`."""
    udp = b"".join(n.to_bytes(2, "big") for n in (host.udp_port, dst_port, 8 + len(payload), 0))
    ethernet = (SWITCH_MAC + number).to_bytes(6, "big") + host.mac.to_bytes(6, "big") + b"\x08\0"
    to = SWITCH_IP + number if dst_ip is None else dst_ip
    return ethernet + ipv4_header(host.ip, to, 8 + len(payload)) + udp + payload


def udp_frame(rank: int, payload: bytes, dst_port: int = wire.AGGREGATION_PORT, dst_ip: int = SWITCH_IP) -> bytes:
    return from_host(rank_host(rank, 0), payload, 0, dst_port, dst_ip)


def frame_with(
    geometry: wire.Geometry,
    blocks: dict[int, bytes],
    kind: int = wire.CONTRIBUTE,
    keys: tuple[int, ...] | None = None,
    **fields: int,
) -> wire.Frame:
    """Return a well-formed frame of the job; `blocks` maps columns to block bytes, `fields` are other fields."""
    present = sum(1 << column for column in blocks)
    data = b"".join(blocks[column] for column in sorted(blocks))
    check = wire.check_of(present, data, geometry.block_words)
    keys = keys or (wire.KEY_NONE,) * geometry.columns
    return wire.Frame(kind, JOB, present, EPOCH, 0, 0, 0, 0, check, keys, data)._replace(**fields)


@dataclass(frozen=True)
class VersionState:
    epoch: int
    round: int
    seen: int
    held: int
    check: int
    keys: tuple[int, ...]
    sums: tuple[tuple[int, ...], ...]
    """The words by column; of columns that are not in `held` they mean nothing."""


@functools.cache
def _compiled(geometry_name: str) -> Compiled:
    return compile_program((ARTIFACTS / geometry_name / "p4reduce.json").read_bytes())


def write(program: Program, entries: Iterable[TableEntry]) -> None:
    for entry in entries:
        table, action = program.tables[entry.table], entry.action or ""
        match = tuple(entry.match[key.name] for key in table.keys)
        insert(table, match, action, tuple(entry.params[name] for name, _ in table.action_params[action]))


def admit(program: Program, grant: Grant, switch: SwitchConfig) -> None:
    """Write what a grant needs to a program in this process, as a controller would to a switch."""
    for group in v1model.groups(grant):
        replicas = [Replica(*replica) for replica in group.replicas]
        program.replication.multicast_groups[group.group_id] = replicas
    write(program, v1model.switch_address(switch, V1MODEL))
    write(program, v1model.admission(grant, V1MODEL))
    write(program, v1model.members(grant, switch, V1MODEL))


class PipelineRig:
    """A program and one admitted job; ports 1.. are the children's, in order: ranks, unless `children` says otherwise.

    With a `parent`, at UPLINK_PORT, the switch is not the job's root. `compiled`: another program to run.
    """

    def __init__(
        self,
        geometry_name: str,
        world_size: int,
        *,
        epoch: int = EPOCH,
        secret_of: Callable[[int], int] = rank_secret,
        compiled: Compiled | None = None,
        children: Sequence[Host] | None = None,
        parent: Host | None = None,
        number: int = 0,
        slot_count: int = SLOT_COUNT,
    ) -> None:
        self.slot_count = slot_count
        self.geometry = artifacts.geometry(ARTIFACTS / geometry_name)
        self.world_size = world_size
        self.children = children or [rank_host(rank, secret_of(rank)) for rank in range(world_size)]
        self.parent = parent
        self.program = Program(_compiled(geometry_name) if compiled is None else compiled)
        admit(self.program, self._grant(epoch), switch_config(number))

    def insert(self, table: str, match: tuple[int, ...], action: str, params: tuple[int, ...]) -> None:
        control = table.split(".")[0]
        insert(self.program.tables[f"MainIngress.{table}"], match, f"MainIngress.{control}.{action}", params)

    def flood_to(self, ports: Sequence[int]) -> None:
        """Set the ports for unknown destinations."""
        self.program.replication.multicast_groups[FLOOD_GROUP] = [Replica(port, 0) for port in ports]

    def _write(self, entries: Sequence[TableEntry]) -> None:
        write(self.program, entries)

    def _grant(self, epoch: int, slot_base: int = SLOT_BASE) -> Grant:
        return grant_of(self.children, self.parent, epoch, slot_base, self.slot_count)

    def admit(self, child: int, epoch: int = EPOCH, slot_base: int = SLOT_BASE) -> None:
        self._write(v1model.admission(self._grant(epoch, slot_base), V1MODEL)[child : child + 1])

    def renew(self, epoch: int) -> None:
        """The job's next epoch: other entries, the same children."""
        admit = self.program.tables[V1MODEL.admit]
        for entry in list(admit.entries()):
            admit.delete(entry.match, entry.priority)
        self._write(v1model.admission(self._grant(epoch), V1MODEL))

    def contribution(
        self,
        slot: int = 0,
        round_: int = 0,
        keys: tuple[int, ...] | None = None,
        blocks: dict[int, bytes] | None = None,
        epoch: int = EPOCH,
    ) -> bytes:
        """A well-formed CONTRIBUTE payload, all but the secret; `blocks` maps columns to block bytes."""
        frame = frame_with(self.geometry, blocks or {}, keys=keys, slot=slot, round=round_, epoch=epoch)
        return wire.pack(self.geometry, frame)

    def frame(self, rank: int, payload: bytes) -> bytes:
        """Return the frame of a rank's host: the contribution `payload`, with the rank's secret."""
        return udp_frame(rank, with_secret(payload, rank_secret(rank)))

    def send(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        """A contribution of rank through the program: (port, frame) of everything that comes out."""
        return self.process(rank_port(rank), self.frame(rank, payload))

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        return self.program.process(port, frame)

    def version_state(self, slot: int, version: int) -> VersionState:
        registers = {
            name.removeprefix("MainIngress."): register.read((SLOT_BASE + slot) << 1 | version)
            for name, register in self.program.registers.items()
        }
        columns = range(self.geometry.columns)
        words = [_block_of(registers, column, self.geometry.block_bytes) for column in columns]
        return VersionState(
            registers["slot_state.tags"] >> 32,
            registers["slot_state.tags"] & 0xFFFFFFFF,
            registers["slot_state.seen"],
            registers["slot_state.held"],
            registers["check_word.checks"],
            tuple(registers[f"column_{column}.keys"] for column in columns),
            tuple(tuple(int.from_bytes(w[i : i + 4], "big") for i in range(0, len(w), 4)) for w in words),
        )

    def drops(self) -> dict[str, int]:
        """Frames dropped so far, by the name of the reason; reasons without drops are left out."""
        counter = self.program.counters["MainIngress.drops"]
        counted = {reason: counter.read(reason)[0] for reason in range(counter.size)}
        return {wire.DROP_REASONS[reason]: count for reason, count in counted.items() if count}

    def job_count(self, counter: str) -> int:
        return self.program.counters[f"MainIngress.{counter}"].read(JOB)[0]


def _block_of(registers: dict[str, int], column: int, block_bytes: int) -> bytes:
    """A column's sum: the parts of a block, in order."""
    parts = sorted(name for name in registers if name.startswith(f"column_{column}.sums_"))
    return b"".join(registers[name].to_bytes(block_bytes // len(parts), "big") for name in parts)


def is_for(rank: int, frame: bytes) -> bool:
    """Whether a frame has the MAC address and the UDP port of a rank."""
    return (frame[:6], frame[36:38]) == (rank_mac(rank).to_bytes(6, "big"), rank_udp_port(rank).to_bytes(2, "big"))


def with_secret(payload: bytes, secret: int) -> bytes:
    """The payload with that secret; no checksum covers it."""
    return payload[:SECRET_AT] + secret.to_bytes(8, "big") + payload[SECRET_AT + 8 :]


def payload_of(frame: bytes) -> bytes:
    """The UDP payload of a frame the switch sent, after checking the headers around it."""
    assert frame[12:14] == b"\x08\0"
    assert internet_checksum(frame[14:34]) == 0, "IPv4 checksum"
    assert int.from_bytes(frame[16:18], "big") == len(frame) - 14
    assert int.from_bytes(frame[38:40], "big") == len(frame) - 34
    return frame[42:]
