"""Frames a second a core of the embedded switch over UDP, beside a reflector that sends every datagram back."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack

from p4reduce_controller.registry.slots import DEFAULT_SLOTS
from p4reduce_lab.addresses import LOOPBACK, free_port
from p4reduce_lab.bench.case import Case, Run, Threshold
from p4reduce_lab.bench.switches import EMBEDDED, RANKS, Loaded, load_over_udp, over_udp, prepare
from p4reduce_lab.bench.udp_load import UdpPeers

SLOTS = DEFAULT_SLOTS
"""In flight at once, of every rank: what a job gets."""
_FEWER_SLOTS = 32
"""As many as fit the socket buffers that a system grants without root."""
_READY_S = 60.0
REFLECTOR = "reflector"
VARIANTS = {"GSO peers": True, "plain peers": False}

GSO = Threshold("switch over UDP, GSO peers: embedded switch / reflector, frames/s a core", 0.25)
PLAIN = Threshold("switch over UDP, plain peers: embedded switch / reflector, frames/s a core", 0.7)


def measure(run: Run) -> None:
    """Start all switches and reflectors, and load each in turn."""
    slots = SLOTS if run.networks else _FEWER_SLOTS
    with ExitStack() as stack:
        loaded: dict[tuple[str, str], Loaded] = {}
        for variant, runs in VARIANTS.items():
            loaded[REFLECTOR, variant] = _reflector(run, stack, variant, slots, runs)
            switch, peers = over_udp(run, stack, f"switch {variant}", slots, runs=runs)
            loaded[EMBEDDED, variant] = Loaded(switch.child, peers)
        load_over_udp(run, loaded, slots)
    for threshold, variant in ((GSO, "GSO peers"), (PLAIN, "plain peers")):
        run.ratio(threshold.name, loaded[EMBEDDED, variant].a_core, loaded[REFLECTOR, variant].a_core)
    run.note("Frames are as the pipeline sees them; a core is a second of the switch process's own processor time.")


def _reflector(run: Run, stack: ExitStack, variant: str, slots: int, runs: bool) -> Loaded:
    port = free_port(socket.SOCK_DGRAM)
    command = [sys.executable, "-P", "-m", "p4reduce_lab.bench.udp_reflector", f"{LOOPBACK}:{port}"]
    child = run.children.start(f"{REFLECTOR} {variant}", command + (["--runs"] if runs else []))
    child.wait_ready(lambda: b"ready" in child.log.read_bytes(), _READY_S)
    run.note(child.log.read_text().splitlines()[0])
    peers = UdpPeers(LOOPBACK, port, RANKS, runs=runs)
    stack.callback(peers.close)
    peers.discard_hellos()
    prepare(peers, peers.addresses(), slots)
    return Loaded(child, peers)


CASE = Case(
    "switch-udp",
    "frames/s a core of the embedded switch over UDP, beside a reflector",
    measure,
    thresholds=(GSO, PLAIN),
)
