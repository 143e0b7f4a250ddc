"""A training script that closes nothing; test_ddp_ends.py starts it. Its controller and switch are inside."""

import socket
import sys
import threading
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import p4reduce
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs import client as jobs
from p4reduce_contracts.jobs.answers import SwitchAddress
from p4reduce_contracts.jobs.lease import LeasedSwitch
from p4reduce_contracts.wire.geometry import DEFAULT
from p4reduce_contracts.wire.numbers import BASE_BYTES, NONCE_BYTES

SLOTS = 16
how = sys.argv[1]
world_size = 1
deaf, busy = threading.Event(), threading.Event()
"""Events: the switch stops answering, so that a collective runs for as long as it may; a collective runs."""


def serve(udp: socket.socket, switch: ReferenceSwitch) -> None:
    while True:
        payload, source = udp.recvfrom(4096)
        if len(payload) != BASE_BYTES + NONCE_BYTES:  # HELLO goes to the controller
            if deaf.is_set():
                busy.set()
                continue
            for rank, answer in switch.process(0, payload):
                if rank == 0:
                    udp.sendto(answer, source)


class Client:
    """The controller's answers."""

    timeout_s = 1.0

    def __init__(self, address: str, **options: object) -> None:
        pass

    def join(self, job: str, rank: int, world_size: int, *_: str, **given: object) -> jobs.JoinTicket:
        return jobs.JoinTicket(1, job, 1, rank, world_size, (SwitchAddress("", "127.0.0.1", port),), 8, 32, 0.01)

    def wait_lease(self, nonce: int, timeout_s: float) -> jobs.Lease:
        return jobs.Lease(1, "job", 7, 0, world_size, SLOTS, 8, 32, 0.05, (LeasedSwitch(port=port),))

    def heartbeat(self, nonce: int, slot_wait: object = None, usage: object = None) -> str | None:
        return None

    def watch(self, nonce: int) -> SimpleNamespace:
        return SimpleNamespace(close=lambda: None, attach=lambda on_reset: None)

    def leave(self, nonce: int, timeout_s: float | None = None, **said: object) -> None:
        print("left", flush=True)

    def close(self) -> None:
        pass


def model_on(comm: p4reduce.Communicator) -> DistributedDataParallel:
    model = DistributedDataParallel(nn.Sequential(nn.Linear(500, 50), nn.Linear(50, 2)), bucket_cap_mb=0.0001)
    model.register_comm_hook(p4reduce.DDPState(comm), p4reduce.ddp_hook)
    return model


def train() -> None:
    model = model_on(p4reduce.join("job", rank=0, world_size=1))
    for _ in range(3):
        model(torch.ones(4, 500)).sum().backward()


udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
port = udp.getsockname()[1]
switch = ReferenceSwitch(DEFAULT, SLOTS)
switch.add_job(1, 7, world_size, 0, SLOTS)
threading.Thread(target=serve, args=(udp, switch), daemon=True).start()
jobs.JobClient: Any = Client  # type: ignore[misc]
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
print("working", flush=True)
if how == "in-function":
    train()
elif how == "forgotten":
    p4reduce.join("job", rank=0, world_size=1).barrier()
else:
    comm = p4reduce.join("job", rank=0, world_size=world_size)
    if how == "finished":
        model = model_on(comm)
        for _ in range(3):
            model(torch.ones(4, 500)).sum().backward()
    elif how == "raised":
        state = p4reduce.DDPState(comm)
        deaf.set()
        gradient = torch.ones(3)

        class Bucket:
            index, is_last = staticmethod(lambda: 0), staticmethod(lambda: False)
            buffer = staticmethod(lambda: gradient)
            gradients = parameters = staticmethod(lambda: [gradient])

        state.reduce(Bucket())  # type: ignore[arg-type]
        busy.wait(600)
        raise ValueError("of the user")
