"""Workers that do trainings of examples/train.py, one after the other in one process group, and measure them.

    python -m p4reduce_lab.measured_training FILE [RANKS [SWITCH...]]

FILE is JSON: a list of trainings, each a list of options of train.py and --out. Without RANKS the process is one rank,
by the environment that torchrun sets; with RANKS it forks so many on this machine after torch is imported, and SWITCH
are the switches that they send to, by rank. For each training rank 0 writes what all ranks measured to --out: bytes on
the wire, seconds, losses, test accuracy, and a hash of the weights, which have to be the same on all ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.util
import json
import math
import os
import socket
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from p4reduce.compressors import Compressor
from p4reduce.compressors.all_reduce import BucketReport
from p4reduce_lab.addresses import LOOPBACK, reserved_port
from p4reduce_lab.training import find_script

ETHERNET_IP_TCP = 14 + 20 + 32
"""Header bytes of a TCP segment with timestamps."""

TcpCounts = dict[int, tuple[int, int, int]]
"""Inode of a socket -> bytes up and bytes down, both with headers, and segments sent again."""


def measure(script: ModuleType, args: argparse.Namespace) -> None:
    """Train once on this rank; rank 0 writes the result of all ranks.

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
    print(f"test accuracy {100 * accuracy:.2f} %, {seconds:.1f} s, {len(losses)} steps", flush=True)
    result = {
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
    if args.out:
        args.out.write_text(json.dumps(result), encoding="utf-8")


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


def load_script() -> ModuleType:
    """Import the training script, which is in no package."""
    spec = importlib.util.spec_from_file_location("train", find_script())
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.settings.add_argument("--out", type=Path, help="write the results to this JSON file")
    return script


def run_trainings(script: ModuleType, path: str) -> None:
    """Run all trainings of the file in one process group of the script's, as the rank of the environment."""
    trainings = [script.parse(options) for options in json.loads(Path(path).read_text(encoding="utf-8"))]

    def measure_all(trainings: list[argparse.Namespace]) -> None:
        for number, args in enumerate(trainings, start=1):
            if dist.get_rank() == 0:
                print(f"training {number}/{len(trainings)}: {args.out.stem}", flush=True)
            measure(script, args)

    script.run(measure_all, trainings)


def run_rank(rank: int, path: str, ranks: int, port: int, switches: list[str]) -> None:
    """Set the environment of one of `ranks` on this machine, as torchrun does, and run the trainings."""
    group = {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": port, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    os.environ.update({key: str(value) for key, value in {**group, "RANK": rank, "LOCAL_RANK": rank}.items()})
    if switches:
        os.environ["P4REDUCE_SWITCH"] = switches[rank]
    run_trainings(load_script(), path)


def main() -> None:
    """Run as one rank, or fork all ranks."""
    path, *rest = sys.argv[1:]
    if not rest:
        run_trainings(load_script(), path)
        return
    importlib.import_module("torch._dynamo")  # which each rank's first optimizer would import
    load_script()  # and with it scikit-learn
    method = "fork" if sys.platform == "linux" else "spawn"
    ranks, *switches = rest
    with reserved_port() as port:
        arguments = (path, int(ranks), port, switches)
        start_processes(run_rank, arguments, int(ranks), start_method=method)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
