"""Ranks that are a UDP socket each, and send given frames one by one."""

from __future__ import annotations

import socket
import struct

from p4reduce_contracts.jobs.answers import JoinTicket
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import RESULT
from rigs import wire
from rigs.limits import LIMIT_S
from rigs.pipeline import frame_with


class Worker:
    def __init__(
        self, client: JobClient, rank: int, world_size: int, geometry: Geometry = wire.SMALL, job: str = "train"
    ) -> None:
        self.client = client
        self.geometry = geometry
        self.ticket: JoinTicket = client.join(job, rank, world_size)
        self.lease: Lease | None = None
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(LIMIT_S)

    def hello(self) -> None:
        self.send(wire.pack_hello(self.ticket.job_id, self.ticket.nonce))

    def contribute(self, number: int, words: list[int]) -> None:
        """A block of `words` in column 0 of round `number` of slot 0."""
        assert self.lease is not None
        blocks = {0: struct.pack(f"!{self.geometry.block_words}I", *words)}
        of_lease = {"job": self.lease.job_id, "epoch": self.lease.epoch, "secret": self.lease.switches[0].secret}
        self.send(wire.pack(self.geometry, frame_with(self.geometry, blocks, round=number, **of_lease)))

    def send(self, payload: bytes) -> None:
        self.socket.sendto(payload, (self.ticket.switches[0].host, self.ticket.switches[0].port))

    def receive(self) -> tuple[int, tuple[int, ...]]:
        frame = wire.unpack(self.geometry, self.socket.recv(2048))
        assert self.lease is not None and frame.secret == self.lease.switches[0].secret
        return frame.type, struct.unpack(f"!{self.geometry.block_words}I", frame.blocks)


def form(client: JobClient, world_size: int, geometry: Geometry = wire.SMALL) -> list[Worker]:
    workers = [Worker(client, rank, world_size, geometry) for rank in range(world_size)]
    for worker in workers:
        worker.hello()
    for worker in workers:
        worker.lease = client.wait_lease(worker.ticket.nonce, LIMIT_S)
    return workers


def sum_one_round(workers: list[Worker], number: int) -> None:
    block_words = workers[0].geometry.block_words
    for rank, worker in enumerate(workers):
        worker.contribute(number, [10**rank * (word + 1) % 2**32 for word in range(block_words)])
    total = tuple(sum(10**rank * (word + 1) for rank in range(len(workers))) % 2**32 for word in range(block_words))
    for worker in workers:
        assert worker.receive() == (RESULT, total)


def close(workers: list[Worker]) -> None:
    for worker in workers:
        worker.socket.close()
