"""Frames a second a core of the embedded switch over UDP without a trace, and with one."""

from __future__ import annotations

from contextlib import ExitStack

from p4reduce_lab.bench.case import Case, Run
from p4reduce_lab.bench.switches import Loaded, load_over_udp, over_udp
from p4reduce_lab.processes import P4REDUCE

SLOTS = 16
_READY_S = 60.0
TRACES = {"no trace": None, "a trace of another port": ["--port", "511"], "a trace of every frame": []}
"""The formats that `p4reduce switch trace` is asked for."""


def measure(run: Run) -> None:
    """Start a switch for each, and load each in turn."""
    with ExitStack() as stack:
        load_over_udp(run, {name: _switch(run, stack, name) for name in TRACES}, SLOTS)


def _switch(run: Run, stack: ExitStack, name: str) -> Loaded:
    switch, peers = over_udp(run, stack, f"switch with {name}", SLOTS, runs=False)
    options = TRACES[name]
    if options is not None:
        command = [*P4REDUCE, "switch", "trace", "--p4runtime", switch.p4runtime, *options]
        child = run.children.start(f"traces of {name}", command)
        child.wait_ready(lambda: b"trace on" in child.log.read_bytes(), _READY_S)
    return Loaded(switch.child, peers)


CASE = Case("switch-trace", "frames/s a core of the embedded switch over UDP without a trace, and with one", measure)
