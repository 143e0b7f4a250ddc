"""Frames a second a core of the embedded switch over UDP, whose peers send runs of datagrams or one at a time."""

from __future__ import annotations

from contextlib import ExitStack

from p4reduce_controller.registry.slots import DEFAULT_SLOTS
from p4reduce_lab.bench.case import Case, Run
from p4reduce_lab.bench.switches import Loaded, load_over_udp, over_udp

SLOTS = DEFAULT_SLOTS
"""Frames of every rank that are in flight at once: the slots that a job gets."""
_FEWER_SLOTS = 32
"""The slots whose frames fit the socket buffers that a system grants without root."""
VARIANTS = {"GSO peers": True, "plain peers": False}


def measure(run: Run) -> None:
    """Start a switch for each, and load each in turn."""
    slots = SLOTS if run.networks else _FEWER_SLOTS
    with ExitStack() as stack:
        loaded: dict[str, Loaded] = {}
        for variant, runs in VARIANTS.items():
            switch, peers = over_udp(run, stack, f"switch {variant}", slots, runs=runs)
            loaded[variant] = Loaded(switch.child, peers)
        load_over_udp(run, loaded, slots)
    run.note("Frames are as the pipeline sees them; a core is a second of the switch process's own processor time.")


CASE = Case("switch-udp", "frames/s a core of the embedded switch over UDP", measure)
