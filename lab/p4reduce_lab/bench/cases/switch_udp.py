"""Frames a second a core of the embedded switch over UDP.

Its peers send runs of datagrams or one at a time; and it has no trace, or one.
"""

from __future__ import annotations

from contextlib import ExitStack

from p4reduce_controller.registry.slots import DEFAULT_SLOTS
from p4reduce_lab.bench.case import Case, Run
from p4reduce_lab.bench.switches import Loaded, load_over_udp, over_udp
from p4reduce_lab.processes import P4REDUCE

SLOTS = DEFAULT_SLOTS
"""Frames of every rank that are in flight at once: the slots that a job gets."""
_FEWER_SLOTS = 32
"""The slots whose frames fit the socket buffers that a system grants without root."""
_SLOTS_TRACED = 16
_READY_S = 60.0
VARIANTS = {"GSO peers": True, "plain peers": False}
TRACES = {"no trace": None, "a trace of another port": ["--port", "511"], "a trace of every frame": []}
"""The formats that `p4reduce switch trace` is asked for."""


def measure(run: Run) -> None:
    """Start a switch for each kind of peers, and load each in turn."""
    slots = SLOTS if run.networks else _FEWER_SLOTS
    with ExitStack() as stack:
        loaded = {
            variant: Loaded(*over_udp(run, stack, f"switch {variant}", slots, runs=runs))
            for variant, runs in VARIANTS.items()
        }
        load_over_udp(run, loaded, slots)
    run.note("Frames are as the pipeline sees them; a core is a second of the switch process's own processor time.")


def measure_traces(run: Run) -> None:
    """Start a switch for each trace, and load each in turn."""
    with ExitStack() as stack:
        loaded: dict[str, Loaded] = {}
        for name, options in TRACES.items():
            switch, peers = over_udp(run, stack, f"switch with {name}", _SLOTS_TRACED, runs=False)
            if options is not None:
                command = [*P4REDUCE, "switch", "trace", "--p4runtime", switch.p4runtime, *options]
                child = run.children.start(f"traces of {name}", command)
                child.wait_line("trace on", _READY_S)
            loaded[name] = Loaded(switch, peers)
        load_over_udp(run, loaded, _SLOTS_TRACED)


CASE = Case("switch-udp", "frames/s a core of the embedded switch over UDP", measure)
TRACE_CASE = Case(
    "switch-trace", "frames/s a core of the embedded switch over UDP without a trace, and with one", measure_traces
)
