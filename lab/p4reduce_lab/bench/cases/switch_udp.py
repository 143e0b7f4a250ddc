"""Frames a second a core of the embedded switch over UDP, beside a reflector that sends every datagram back."""

from __future__ import annotations

import contextlib
import socket
import sys
from statistics import median

from p4reduce_contracts import artifacts
from p4reduce_controller.registry.slots import DEFAULT_SLOTS
from p4reduce_lab.addresses import LOOPBACK, free_port
from p4reduce_lab.bench import links, switches
from p4reduce_lab.bench.case import Case, Run, Series, Threshold
from p4reduce_lab.bench.load import make_grant
from p4reduce_lab.bench.switches import EMBEDDED, Loaded, load_in_turn
from p4reduce_lab.bench.udp_load import UdpPeers
from p4reduce_runtime import pipeline_folders

RANKS = 4
SLOTS = DEFAULT_SLOTS
"""In flight at once, of every rank: what a job gets."""
_FEWER_SLOTS = 32
"""As many as fit the socket buffers that a system grants without root."""
_SECONDS, _QUICK_SECONDS = 2.0, 0.5
_READY_S = 60.0
REFLECTOR = "reflector"
VARIANTS = {"GSO peers": True, "plain peers": False}

GSO = Threshold("switch over UDP, GSO peers: embedded switch / reflector, frames/s a core", 0.25)
PLAIN = Threshold("switch over UDP, plain peers: embedded switch / reflector, frames/s a core", 0.7)


def measure(run: Run) -> None:
    """Start all switches and reflectors, and load each in turn."""
    seconds = _QUICK_SECONDS if run.quick else _SECONDS
    slots = _slots(run)
    with contextlib.ExitStack() as stack:
        loaded: dict[tuple[str, str], Loaded] = {}
        for variant, runs in VARIANTS.items():
            loaded[REFLECTOR, variant] = _reflector(run, stack, variant, runs)
            loaded[EMBEDDED, variant] = _switch(run, stack, variant, runs)
        load_in_turn(run, loaded, seconds)
        for (name, variant), process in loaded.items():
            counted = {"CPU ns a frame": process.cpu_ns, "frames/s by the clock": median(process.frames_per_s)}
            what = f"{RANKS} ranks, {slots} slots, 1,114-byte frames, {variant}"
            run.add(Series(what, name, str(links.LOOPBACK), "frames/s a core", process.a_core, {}, counted))
    for threshold, variant in ((GSO, "GSO peers"), (PLAIN, "plain peers")):
        run.ratio(threshold.name, loaded[EMBEDDED, variant].a_core, loaded[REFLECTOR, variant].a_core)
    run.note("Frames are as the pipeline sees them; a core is a second of the switch process's own processor time.")


def _slots(run: Run) -> int:
    return SLOTS if run.networks else _FEWER_SLOTS


def _switch(run: Run, stack: contextlib.ExitStack, variant: str, runs: bool) -> Loaded:
    port = free_port(socket.SOCK_DGRAM)
    switch = switches.over_udp(run.children, f"switch {variant}", f"{LOOPBACK}:{port}")
    stack.callback(switch.close)
    peers = UdpPeers(LOOPBACK, port, RANKS, runs=runs)
    stack.callback(peers.close)
    grant = make_grant(peers.addresses(), _slots(run))
    switch.install(grant)
    peers.prepare(artifacts.geometry(pipeline_folders.find(switches.GEOMETRY)), grant)
    return Loaded(switch.child, peers)


def _reflector(run: Run, stack: contextlib.ExitStack, variant: str, runs: bool) -> Loaded:
    port = free_port(socket.SOCK_DGRAM)
    command = [sys.executable, "-P", "-m", "p4reduce_lab.bench.udp_reflector", f"{LOOPBACK}:{port}"]
    child = run.children.start(f"{REFLECTOR} {variant}", command + (["--runs"] if runs else []))
    child.wait_ready(lambda: b"ready" in child.log.read_bytes(), _READY_S)
    run.note(child.log.read_text().splitlines()[0])
    peers = UdpPeers(LOOPBACK, port, RANKS, runs=runs)
    stack.callback(peers.close)
    peers.discard_hellos()
    grant = make_grant(peers.addresses(), _slots(run))
    peers.prepare(artifacts.geometry(pipeline_folders.find(switches.GEOMETRY)), grant)
    return Loaded(child, peers)


CASE = Case(
    "switch-udp",
    "frames/s a core of the embedded switch over UDP, beside a reflector",
    measure,
    thresholds=(GSO, PLAIN),
)
