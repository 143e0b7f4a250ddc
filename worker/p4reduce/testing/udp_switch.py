"""The reference switch on a real UDP socket, with loss on request: for ranks that are processes, without a controller.

    python -m p4reduce.testing.udp_switch --world-size 4 --drop 0.01

prints its port. A rank is known by the address from which it said `greeting(rank)`.
"""

from __future__ import annotations

import argparse
import random
import socket
from typing import Final, Self

from p4reduce.communicator import Communicator
from p4reduce.testing.local_group import EPOCH, JOB
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce.timeouts import DEFAULT_TIMEOUT_S
from p4reduce.transport import BUFFER_BYTES, UdpTransport
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.geometry import DEFAULT
from p4reduce_runtime import datagrams
from p4reduce_runtime.threads import DaemonThread

_GREETING: Final = b"p4reduce rank "
_DROP: Final = b"p4reduce drop "
_STOP: Final = b"p4reduce stop"
_DATAGRAM_BYTES: Final = 65535


def greeting(rank: int) -> bytes:
    """Return the datagram that makes its sender's address that of `rank`."""
    return _GREETING + str(rank).encode()


def drop_rate_message(drop: float) -> bytes:
    """Return the datagram that sets the probability that a later frame is lost."""
    return _DROP + str(drop).encode()


class UdpSwitch:
    """`with UdpSwitch(2) as switch: comm = connect(switch.port, rank=0, world_size=2)`

    `drop`: the chance of every frame, up and down, to be lost; drawn from `seed`.
    """

    def __init__(self, world_size: int, slots: int = 64, *, drop: float = 0.0, seed: int = 0) -> None:
        self.switch = ReferenceSwitch(DEFAULT, slots)
        self.switch.add_job(JOB, EPOCH, world_size, 0, slots)
        self.drop = drop
        self._random = random.Random(seed)
        self._addresses: dict[int, tuple[str, int]] = {}
        self._ranks: dict[tuple[str, int], int] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.enlarge_buffers(self._socket, BUFFER_BYTES)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = DaemonThread(self.serve, "p4reduce-udp-switch")

    def serve(self) -> None:
        """Answer datagrams until `close()`."""
        while True:
            payload, source = self._socket.recvfrom(_DATAGRAM_BYTES)
            if payload == _STOP:
                return
            if payload.startswith(_GREETING):
                rank = int(payload.removeprefix(_GREETING))
                self._addresses[rank], self._ranks[source] = source, rank
            elif payload.startswith(_DROP):
                self.drop = float(payload.removeprefix(_DROP))
            elif source in self._ranks and self._random.random() >= self.drop:
                for rank, answer in self.switch.process(self._ranks[source], payload):
                    if rank in self._addresses and self._random.random() >= self.drop:
                        self._socket.sendto(answer, self._addresses[rank])

    def close(self) -> None:
        """Stop answering and free the port."""
        self._socket.sendto(_STOP, self._socket.getsockname())
        if self._thread.is_alive():
            self._thread.join(10)
        self._socket.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    port: int, rank: int, world_size: int, slots: int = 64, *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Communicator:
    """Return the communicator of a rank, over the UdpSwitch at `port` of this host."""
    place = rank, world_size, slots, DEFAULT.columns, DEFAULT.block_words
    lease = Lease(JOB, "test", EPOCH, *place, switches=(LeasedSwitch(port=port),))
    transport = UdpTransport("127.0.0.1", port)
    transport.send([greeting(rank)])
    return Communicator(lease, transport, timeout_s=timeout_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--drop", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    switch = UdpSwitch(given.world_size, given.slots, drop=given.drop, seed=given.seed)
    print(switch.port, flush=True)
    switch.serve()


if __name__ == "__main__":
    main()
