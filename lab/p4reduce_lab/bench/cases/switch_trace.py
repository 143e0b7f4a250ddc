"""Frames a second a core of the embedded switch over UDP without a trace, and with one."""

from __future__ import annotations

import contextlib
import socket
from statistics import median

from p4reduce_contracts import artifacts
from p4reduce_lab.addresses import LOOPBACK, free_port
from p4reduce_lab.bench import links, switches
from p4reduce_lab.bench.case import Case, Run, Series
from p4reduce_lab.bench.load import make_grant
from p4reduce_lab.bench.switches import EMBEDDED, Loaded, load_in_turn
from p4reduce_lab.bench.udp_load import UdpPeers
from p4reduce_lab.processes import P4REDUCE
from p4reduce_runtime import pipeline_folders

RANKS, SLOTS = 4, 16
_SECONDS, _QUICK_SECONDS = 2.0, 0.5
_READY_S = 60.0
TRACES = {"no trace": None, "a trace of another port": ["--port", "511"], "a trace of every frame": []}
"""What is asked for by `p4reduce switch trace`."""


def measure(run: Run) -> None:
    """Start a switch for each, and load each in turn."""
    with contextlib.ExitStack() as stack:
        loaded = {(EMBEDDED, name): _switch(run, stack, name) for name in TRACES}
        load_in_turn(run, loaded, _QUICK_SECONDS if run.quick else _SECONDS)
        for (_, name), process in loaded.items():
            counted = {"CPU ns a frame": process.cpu_ns, "frames/s by the clock": median(process.frames_per_s)}
            what = f"{RANKS} ranks, {SLOTS} slots, 1,114-byte frames, {name}"
            run.add(Series(what, EMBEDDED, str(links.LOOPBACK), "frames/s a core", process.a_core, {}, counted))


def _switch(run: Run, stack: contextlib.ExitStack, name: str) -> Loaded:
    port = free_port(socket.SOCK_DGRAM)
    switch = switches.over_udp(run.children, f"switch with {name}", f"{LOOPBACK}:{port}")
    stack.callback(switch.close)
    peers = UdpPeers(LOOPBACK, port, RANKS, runs=False)
    stack.callback(peers.close)
    grant = make_grant(peers.addresses(), SLOTS)
    switch.install(grant)
    peers.prepare(artifacts.geometry(pipeline_folders.find(switches.GEOMETRY)), grant)
    options = TRACES[name]
    if options is not None:
        command = [*P4REDUCE, "switch", "trace", "--p4runtime", switch.p4runtime, *options]
        child = run.children.start(f"traces of {name}", command)
        child.wait_ready(lambda: b"trace on" in child.log.read_bytes(), _READY_S)
    return Loaded(switch.child, peers)


CASE = Case("switch-trace", "frames/s a core of the embedded switch over UDP without a trace, and with one", measure)
