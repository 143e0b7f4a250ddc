"""A training script that closes nothing; test_ddp_hook.py starts it. Its controller and switch are inside."""

import socket
import sys
import threading
from typing import Any
from unittest.mock import Mock

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
from rigs.buckets import Bucket

SLOTS = 16
how = sys.argv[1]
deaf, busy = threading.Event(), threading.Event()
"""Events: the switch stops answering, so that a collective runs for as long as it may; a collective runs."""


def serve(udp: socket.socket, switch: ReferenceSwitch) -> None:
    while True:
        payload, source = udp.recvfrom(4096)
        if deaf.is_set():
            busy.set()
        elif len(payload) != BASE_BYTES + NONCE_BYTES:  # HELLO goes to the controller
            for _, answer in switch.process(0, payload):
                udp.sendto(answer, source)


def controller(port: int) -> Any:
    """Return a job client's answers."""
    ticket = jobs.JoinTicket(1, "job", 1, 0, 1, (SwitchAddress("", "127.0.0.1", port),), 8, 32, 0.01)
    lease = jobs.Lease(1, "job", 7, 0, 1, SLOTS, 8, 32, 0.05, (LeasedSwitch(port=port),))
    answers = Mock(timeout_s=1.0, leave=lambda *_, **__: print("left", flush=True))
    answers.join.return_value, answers.wait_lease.return_value, answers.heartbeat.return_value = ticket, lease, None
    return answers


def train(comm: p4reduce.Communicator) -> DistributedDataParallel:
    model = DistributedDataParallel(nn.Sequential(nn.Linear(500, 50), nn.Linear(50, 2)), bucket_cap_mb=0.0001)
    model.register_comm_hook(p4reduce.DDPState(comm), p4reduce.ddp_hook)
    for _ in range(3):
        model(torch.ones(4, 500)).sum().backward()
    return model


udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
switch = ReferenceSwitch(DEFAULT, SLOTS)
switch.add_job(1, 7, 1, 0, SLOTS)
threading.Thread(target=serve, args=(udp, switch), daemon=True).start()
jobs.JobClient = Mock(return_value=controller(udp.getsockname()[1]))  # type: ignore[misc]
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
print("working", flush=True)
if how == "in-function":
    train(p4reduce.join("job", rank=0, world_size=1))
elif how == "forgotten":
    p4reduce.join("job", rank=0, world_size=1).barrier()
else:
    comm = p4reduce.join("job", rank=0, world_size=1)
    if how == "finished":
        model = train(comm)
    elif how == "raised":
        state = p4reduce.DDPState(comm)
        deaf.set()
        state.reduce(Bucket(0, torch.ones(3), torch.ones(3), last=False))  # type: ignore[arg-type]
        busy.wait(600)
        raise ValueError("of the user")
