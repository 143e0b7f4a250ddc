"""Multicast groups and clone sessions: who gets a copy of a packet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from p4reduce_switch.program.packet import MAX_PORT

MAX_INSTANCE = 0xFFFF


@dataclass(frozen=True)
class Replica:
    """One copy: the port it goes to and the instance it carries as egress_rid."""

    port: int
    instance: int

    def __post_init__(self) -> None:
        if not 0 <= self.port <= MAX_PORT:
            raise ValueError(f"port {self.port} is outside 0..{MAX_PORT}")
        if not 0 <= self.instance <= MAX_INSTANCE:
            raise ValueError(f"instance {self.instance} is outside 0..{MAX_INSTANCE}")


@dataclass(frozen=True)
class CloneSession:
    """Copies made by a clone primitive; `truncate_len` bytes are sent at most, 0 for all."""

    replicas: tuple[Replica, ...]
    truncate_len: int = 0


class Replication:
    """The packet replication engine. Copies are made in the order of the lists."""

    def __init__(self) -> None:
        self.multicast_groups: dict[int, Sequence[Replica]] = {}
        self.clone_sessions: dict[int, CloneSession] = {}
