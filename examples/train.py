"""Train a small CNN on handwritten digits, summing gradients over gloo or the switch.

    # 1. the usual way: gloo's ring over TCP
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 examples/train.py

    # 2. through the switch (in two other terminals: `p4reduce switch run` and `p4reduce controller run`)
    p4reduce job create digits --world-size 4
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 examples/train.py --aggregation p4reduce --job digits

    # 3. and compressed
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 examples/train.py --aggregation p4reduce --job digits \\
        --compressor adacomp --out adacomp.json

--compressor takes a name (docs/compressors.md lists them) or a TOML file that names a compressor and its settings.

The data are scikit-learn's 1797 digits of 8 x 8 pixels, which come with the package: nothing is downloaded.
"""

import argparse
import contextlib
import gc
import hashlib
import json
import math
import os
import socket
import struct
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import p4reduce
from p4reduce.compressors import by_name, from_toml

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--aggregation", choices=["gloo", "p4reduce"], default="gloo", help="who sums the gradients")
parser.add_argument("--compressor", default="none", metavar="NAME|FILE.toml", help="only with p4reduce [default: none]")
parser.add_argument("--job", help="the switch's job [default: P4REDUCE_JOB]")
parser.add_argument("--seed", type=int, default=0, help="of the initial weights and the order of the data")
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--batch", type=int, default=16, help="images a worker and step")
parser.add_argument("--lr", type=float, default=0.05, help="at the start; a cosine brings it to 0")
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for other workers, each time")
parser.add_argument("--out", help="write the results to this JSON file")
args = parser.parse_args()
if args.compressor != "none" and args.aggregation != "p4reduce":
    parser.error("--compressor needs --aggregation p4reduce")
compressor = None
if args.compressor != "none":
    try:
        compressor = (from_toml if args.compressor.endswith(".toml") else by_name)(args.compressor)
    except ValueError as error:
        parser.error(f"--compressor: {error}")

TEST_IMAGES = 360
LOG_EVERY = 10  # steps
ETHERNET_IP_TCP = 14 + 20 + 32  # header bytes of a TCP segment with timestamps


class Net(nn.Module):
    """Two convolutions and two linear layers, 9802 parameters. float32 [n, 1, 8, 8] -> [n, 10] logits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc1 = nn.Linear(16 * 4 * 4, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = F.max_pool2d(x, 2).flatten(1)
        return self.fc2(F.relu(self.fc1(x)))


def tcp_counts() -> dict[int, tuple[int, int, int]] | None:
    """What the kernel counted on each TCP socket of this process, by inode: bytes sent and received on the
    wire with headers, and segments sent again. None where the kernel does not tell (only Linux does)."""
    counts: dict[int, tuple[int, int, int]] = {}
    try:
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # not a TCP socket, or closed meanwhile
                sock = socket.socket(fileno=os.dup(int(name)))
                with sock:
                    if sock.type != socket.SOCK_STREAM or sock.family not in (
                        socket.AF_INET,
                        socket.AF_INET6,
                    ):
                        continue
                    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    inode = os.fstat(sock.fileno()).st_ino
                (again,) = struct.unpack_from("=I", info, 100)  # struct tcp_info in linux/tcp.h
                (received,) = struct.unpack_from("=Q", info, 128)
                segments_out, segments_in = struct.unpack_from("=II", info, 136)
                (sent,) = struct.unpack_from("=Q", info, 200)
                up, down = sent + ETHERNET_IP_TCP * segments_out, received + ETHERNET_IP_TCP * segments_in
                counts[inode] = (up, down, again)
    except (OSError, AttributeError, struct.error):
        return None
    return counts


def tcp_since(before: dict[int, tuple[int, int, int]] | None) -> tuple[int, int, int] | None:
    """(bytes up, bytes down, retransmitted segments) since `before`, over the sockets open now."""
    now = tcp_counts()
    if now is None or before is None:
        return None
    gone = [[n - b for n, b in zip(now[inode], before.get(inode, (0, 0, 0)), strict=True)] for inode in now]
    up, down, again = (sum(column) for column in zip(*gone, strict=True))
    return up, down, again


# ----- the process group, and this rank's share of the data
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)

pixels, labels = load_digits(return_X_y=True)
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))  # one split for all seeds
x = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8)[order] / 16
y = torch.tensor(labels)[order]
x_test, y_test = x[-TEST_IMAGES:], y[-TEST_IMAGES:]
x, y = x[:-TEST_IMAGES], y[:-TEST_IMAGES]

# ----- the model: the same initial weights on all ranks
torch.manual_seed(args.seed)
model = DistributedDataParallel(Net())
parameters = sum(p.numel() for p in model.parameters())
state = None
if args.aggregation == "p4reduce":
    comm = p4reduce.join(args.job, timeout_s=args.timeout, collective_timeout_s=args.timeout)
    state = p4reduce.DDPState(comm, compressor, module=model)
    model.register_comm_hook(state, p4reduce.ddp_hook)

steps_an_epoch = len(y) // world_size // args.batch
steps = args.epochs * steps_an_epoch
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

# ----- training
dist.barrier()
tcp_before = tcp_counts()
started = time.monotonic()
losses: list[float] = []
for epoch in range(args.epochs):
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1000 * args.seed + epoch))
    mine = order[rank::world_size]
    for batch in mine[: steps_an_epoch * args.batch].view(steps_an_epoch, args.batch):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[batch]), y[batch])
        loss.backward()  # the hook sums the gradients in here
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if rank == 0 and (len(losses) % LOG_EVERY == 0 or len(losses) == steps):
            print(f"step {len(losses)}/{steps} loss {sum(losses[-LOG_EVERY:]) / LOG_EVERY:.4f}", flush=True)
seconds = time.monotonic() - started
tcp = tcp_since(tcp_before)

# ----- results
if state is not None:
    up, down = state.comm.stats.bytes_up, state.comm.stats.bytes_down
    retransmissions = state.comm.stats.retransmissions
    counted: tuple[int, int, int] | None = (up, down, retransmissions)
    reports = state.reports  # of the last step's buckets; empty without a compressor
    state.close()
else:
    counted = tcp
    reports = []
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
mine_too = {"hash": hashlib.sha256(weights).hexdigest(), "counted": counted, "losses": losses}
everyone: list[dict] = [{} for _ in range(world_size)]
dist.all_gather_object(everyone, mine_too)
if len({one["hash"] for one in everyone}) != 1:
    raise SystemExit("the ranks ended with different weights: " + ", ".join(one["hash"][:12] for one in everyone))
if rank == 0:
    with torch.no_grad():
        accuracy = (model.module(x_test).argmax(1) == y_test).float().mean().item()
    known = [one["counted"] for one in everyone if one["counted"] is not None]
    rate = compressor.effective_compression_rate if compressor else math.nan
    predicted = [one.predicted_bytes_down for one in reports if one.predicted_bytes_down is not None]
    means = [sum(column) / len(known) for column in zip(*known, strict=True)] if len(known) == world_size else None
    result = {
        "aggregation": args.aggregation,
        "compressor": args.compressor,
        "seed": args.seed,
        "world_size": world_size,
        "epochs": args.epochs,
        "steps": steps,
        "parameters": parameters,
        "test_accuracy": accuracy,
        "up_bytes_per_step": means[0] / steps if means else None,
        "down_bytes_per_step": means[1] / steps if means else None,
        "retransmissions": round(means[2] * world_size) if means else None,
        "seconds": seconds,
        "effective_compression_rate": None if math.isnan(rate) else rate,
        "forms": {name: str(form) for one in reports for name, form in one.forms.items()},
        "last_step_down_bytes": sum(one.bytes_down for one in reports) if reports else None,
        "last_step_down_bytes_predicted": sum(predicted) if reports and len(predicted) == len(reports) else None,
        "weights": mine_too["hash"],
        "losses": [sum(column) / world_size for column in zip(*(one["losses"] for one in everyone), strict=True)],
    }
    print(f"test accuracy {100 * accuracy:.2f} %, {seconds:.1f} s, {steps} steps", flush=True)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(result, file)
# Gloo's threads must let go of the last collective's tensors before the interpreter ends, or torch aborts the
# process: drop what holds the process group, and meet once more.
del model, optimizer, schedule, loss
gc.collect()
dist.barrier()
dist.destroy_process_group()
