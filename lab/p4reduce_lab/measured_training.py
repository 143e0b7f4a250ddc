"""Workers that do trainings of examples/train.py, one after the other in one process group, and measure them.

    python -m p4reduce_lab.measured_training --job JOB --variant NAME [--ranks RANKS [SWITCH...]]

Without --ranks the process is one rank, by the environment that torchrun sets. With it, it forks so many on this
machine after torch is imported, and SWITCH are the switches that they send to, by rank. Of each training rank 0 prints
what all ranks measured as a line of JSON: bytes on the wire, seconds, losses, test accuracy, and a hash of the weights,
which have to be the same on all ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import math
import os
import socket
import struct
import sys
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from p4reduce.compressors import Compressor
from p4reduce.compressors.all_reduce import BucketReport
from p4reduce_lab.addresses import LOOPBACK, reserved_port
from p4reduce_lab.training import BEGINS, VARIANTS, load_script

ETHERNET_IP_TCP = 14 + 20 + 32
"""Header bytes of a TCP segment with timestamps."""

_LOG_EVERY = "--log-every=100"

TcpCounts = dict[int, tuple[int, int, int]]
"""Inode of a socket -> bytes up and bytes down, both with headers, and segments sent again."""


def measure(script: SimpleNamespace, name: str, args: argparse.Namespace) -> None:
    """Train a variant once on this rank; rank 0 prints the result of all ranks.

    Raises SystemExit if the ranks end with different weights.
    """
    training, test = script.digits()
    model, state = script.build(args)
    dist.barrier()
    tcp_before, started = tcp_counts(), time.monotonic()
    losses = script.train(model, *training, args)
    seconds = time.monotonic() - started
    reports: list[BucketReport] = []  # of the last step's buckets; only a compressor makes them
    if state is None:
        counted = tcp_since(tcp_before)
    else:
        stats, reports = state.comm.stats, state.reports
        counted = (stats.bytes_up, stats.bytes_down, stats.retransmissions)
        state.close()
        state.comm.close()
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    of_rank = {"weights": hashlib.sha256(weights).hexdigest(), "counted": counted, "losses": losses}
    of_all: list[dict[str, Any]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(of_all, of_rank)
    if len(hashes := {rank["weights"] for rank in of_all}) != 1:
        raise SystemExit("the ranks ended with different weights: " + ", ".join(sorted(hash[:12] for hash in hashes)))
    if dist.get_rank() != 0:
        return
    accuracy = script.accuracy(model, *test)
    result = {
        "name": name,
        "aggregation": args.aggregation,
        "compressor": args.compressor.name if args.compressor else "none",
        "seed": args.seed,
        "world_size": len(of_all),
        "epochs": args.epochs,
        "optimizer": f"--lr {args.lr:g} --momentum {args.momentum:g}",
        "steps": len(losses),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "test_accuracy": accuracy,
        **_wire([rank["counted"] for rank in of_all], len(losses)),
        "seconds": seconds,
        "rates": rates_by_kind(args.compressor, dict(model.module.named_parameters())) if args.compressor else {},
        "forms": {name: str(form) for report in reports for name, form in report.forms.items()},
        "last_step_down_bytes": sum(report.bytes_down for report in reports) if reports else None,
        "weights": of_rank["weights"],
        "losses": [sum(column) / len(of_all) for column in zip(*(rank["losses"] for rank in of_all), strict=True)],
    }
    print(json.dumps(result), flush=True)


def _wire(counted: list[tuple[int, int, int] | None], steps: int) -> dict[str, Any]:
    """Return what the ranks counted of a worker and step, and of all frames; None where one could not count."""
    known = [counts for counts in counted if counts is not None]
    if len(known) != len(counted):
        return {"up_bytes_per_step": None, "down_bytes_per_step": None, "retransmissions": None}
    up, down, again = (sum(column) for column in zip(*known, strict=True))
    return {
        "up_bytes_per_step": up / len(known) / steps,
        "down_bytes_per_step": down / len(known) / steps,
        "retransmissions": again,
    }


def rates_by_kind(compressor: Compressor, parameters: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Return the effective compression rates, of all compressed parameters and by kind of layer."""
    kinds: dict[str, list[str]] = {}
    for name, parameter in parameters.items():
        if compressor.policy.length(name, parameter.shape) is not None:
            kinds.setdefault(str(compressor.policy.kind(name, parameter.shape)), []).append(name)
    if not kinds:
        return {}
    rates = {"all": compressor.rate_of(), **{kind: compressor.rate_of(*names) for kind, names in kinds.items()}}
    return {key: round(rate, 2) for key, rate in rates.items() if not math.isnan(rate)}  # NaN: dense so far


def tcp_counts() -> TcpCounts | None:
    """Read what the kernel counted on each TCP socket of this process; None elsewhere than on Linux."""
    counts: TcpCounts = {}
    try:
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # not a TCP socket, or closed meanwhile
                sock = socket.socket(fileno=int(name))
                try:
                    if sock.type != socket.SOCK_STREAM or sock.family not in (socket.AF_INET, socket.AF_INET6):
                        continue
                    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    inode = os.fstat(sock.fileno()).st_ino
                finally:
                    sock.detach()  # the descriptor is another one's to close
                (again,) = struct.unpack_from("=I", info, 100)  # struct tcp_info in linux/tcp.h
                (received,) = struct.unpack_from("=Q", info, 128)
                segments_out, segments_in = struct.unpack_from("=II", info, 136)
                (sent,) = struct.unpack_from("=Q", info, 200)
                up, down = sent + ETHERNET_IP_TCP * segments_out, received + ETHERNET_IP_TCP * segments_in
                counts[inode] = (up, down, again)
    except (OSError, AttributeError, struct.error):
        return None
    return counts


def tcp_since(before: TcpCounts | None) -> tuple[int, int, int] | None:
    """Return bytes up, bytes down and segments sent again since `before`, over the sockets open now."""
    now = tcp_counts()
    if now is None or before is None:
        return None
    grown = [
        [count - old for count, old in zip(counts, before.get(inode, (0, 0, 0)), strict=True)]
        for inode, counts in now.items()
    ]
    up, down, again = (sum(column) for column in zip(*grown, strict=True))
    return up, down, again


def run_trainings(given: argparse.Namespace) -> None:
    """Run all variants with each seed in one process group of the script's, as the rank of the environment."""
    script = load_script()
    epochs = [f"--epochs={given.epochs}"] if given.epochs else []
    trainings = [
        (name, script.parse([*VARIANTS[name], *epochs, f"--job={given.job}", f"--seed={seed}", _LOG_EVERY]))
        for seed in range(given.seeds)
        for name in given.variant
    ]

    def measure_all(trainings: list[tuple[str, argparse.Namespace]]) -> None:
        for name, args in trainings:
            if dist.get_rank() == 0:
                print(f"{BEGINS}{name}, seed {args.seed}", flush=True)
            measure(script, name, args)

    script.run(measure_all, trainings)


def run_rank(rank: int, given: argparse.Namespace, port: int) -> None:
    """Set the environment of one of the ranks on this machine, as torchrun does, and run the trainings."""
    group = {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": port, "WORLD_SIZE": given.ranks, "LOCAL_WORLD_SIZE": given.ranks}
    os.environ.update({key: str(value) for key, value in {**group, "RANK": rank, "LOCAL_RANK": rank}.items()})
    if given.switches:
        os.environ["P4REDUCE_SWITCH"] = given.switches[rank]
    run_trainings(given)


def main() -> None:
    """Run as one rank, or fork all ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", default="")
    parser.add_argument("--variant", action="append", choices=VARIANTS, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("switches", nargs="*")
    given = parser.parse_args()
    if given.ranks is None:
        run_trainings(given)
        return
    importlib.import_module("torch._dynamo")  # which each rank's first optimizer would import
    load_script()  # and with it scikit-learn
    method = "fork" if sys.platform == "linux" else "spawn"
    with reserved_port() as port:
        start_processes(run_rank, (given, port), given.ranks, start_method=method)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
