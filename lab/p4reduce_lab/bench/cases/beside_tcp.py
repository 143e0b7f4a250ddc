"""Dense sums beside one TCP flow on the same links: the rate of both, and Jain's index."""

from __future__ import annotations

import sys
from functools import partial
from statistics import median

from p4reduce_lab.bench.case import NETWORKS, Case, Run, Series, show
from p4reduce_lab.bench.cluster import running_cluster
from p4reduce_lab.bench.links import MBIT_100
from p4reduce_lab.bench.rows import FLOAT_BYTES, MEGABYTE
from p4reduce_lab.bench.tensors import ALL_OVERLAP

RANKS = 2
_ELEMENTS = 4 * MEGABYTE // FLOAT_BYTES
_SUMS, _QUICK_SUMS = 8, 3
"""Sums of a measurement, each of about 0.5 s."""
_READY_S = 10.0
_RECEIVE = """import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print("port", server.getsockname()[1], flush=True)
    with server.accept()[0] as flow:
        print("connected", flush=True)
        while flow.recv(1 << 20):
            pass"""
_SEND = """import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as flow:
    while True:
        flow.sendall(bytes(1 << 16))"""


def measure(run: Run) -> None:
    """Sum over two hosts, of which the first sends to the second by TCP as fast as it can."""
    ours: list[float] = []
    flows: list[float] = []
    with running_cluster(run, MBIT_100, RANKS) as cluster:
        sums = partial(cluster.ask, "all_reduce", peer="p4reduce", elements=_ELEMENTS, density=1.0, pattern=ALL_OVERLAP)
        sender, receiver = cluster.network.hosts
        python = [sys.executable, "-c"]
        algorithm = sender.namespace.run("cat", "/proc/sys/net/ipv4/tcp_congestion_control").strip()
        command = [*receiver.namespace.within, *python, _RECEIVE, receiver.address]
        flow = run.children.start("TCP receiver", command)
        port = flow.wait_line(r"port (\d+)\n", _READY_S)[1]
        run.children.start("TCP sender", [*sender.namespace.within, *python, _SEND, receiver.address, port])
        flow.wait_line("connected", _READY_S)
        sums(calls=_QUICK_SUMS, check=True)  # until both have their shares
        for _ in range(run.repetitions):
            first, _ = sums(calls=_QUICK_SUMS if run.quick else _SUMS, check=True)
            rate = 8e-6 / first["elapsed_s"]
            ours.append(first["frame_bytes"] * rate)
            flows.append((first["bytes_up"] - first["frame_bytes"]) * rate)
    index = [(one + other) ** 2 / (2 * (one**2 + other**2)) for one, other in zip(ours, flows, strict=True)]
    for peer, rates in (("p4reduce", ours), (f"TCP ({algorithm})", flows)):
        run.add(Series(f"dense sums of 4 MB, {RANKS} ranks, beside a TCP flow", peer, str(MBIT_100), "Mbit/s", rates))
    run.note(f"Jain's index of sums and TCP flow: {show(median(index))}")


CASE = Case("beside-tcp", "dense sums beside a TCP flow on the same links: both rates", measure, needs=(NETWORKS,))
