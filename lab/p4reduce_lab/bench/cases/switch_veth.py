"""Frames a second of switches on veth interfaces: BMv2 and the embedded switch, under the same load."""

from __future__ import annotations

import contextlib
import shutil

from p4reduce_lab import targets
from p4reduce_lab.bench import switches
from p4reduce_lab.bench.case import NETWORKS, Case, Run, Series, Threshold
from p4reduce_lab.bench.load import ethernet_addresses
from p4reduce_lab.bench.switches import EMBEDDED, RANKS, Loaded, load_in_turn, prepare
from p4reduce_lab.bench.veth_load import VethPeers
from p4reduce_lab.network import NetworkBuilder
from p4reduce_lab.network import run as run_command

SLOTS = 16
_ONE_BY_ONE, _RUNS = "one by one", "in runs (GSO)"
BMV2 = "BMv2"
_SECONDS, _QUICK_SECONDS = 3.0, 1.0
_OVER_BMV2 = Threshold("switch over veth: embedded switch / BMv2, frames/s", 10)


def measure(run: Run) -> None:
    """Load every switch in turn, each on interfaces of its own."""
    seconds = _QUICK_SECONDS if run.quick else _SECONDS
    variants = [(EMBEDDED, _ONE_BY_ONE), (EMBEDDED, _RUNS)]
    if shutil.which(targets.BMV2) is None:
        run.skip(BMV2, f"{targets.BMV2} is not on PATH")
    else:
        variants.append((BMV2, _ONE_BY_ONE))
        run.note(bmv2_text())
    with contextlib.ExitStack() as stack:
        loaded: dict[tuple[str, str], Loaded] = {}
        for number, (name, variant) in enumerate(variants):
            peers = VethPeers(f"v{number}", RANKS, NetworkBuilder(run.children), runs=variant == _RUNS)
            stack.callback(peers.close)
            target = "bmv2" if name == BMV2 else "embedded"
            switch = switches.on_interfaces(run.children, f"switch {name} {variant}", target, peers.inside)
            stack.callback(switch.close)
            switch.install(prepare(peers, ethernet_addresses(RANKS), SLOTS))
            loaded[name, variant] = Loaded(switch, peers)
        load_in_turn(run, loaded.values(), seconds)
    for (name, variant), process in loaded.items():
        what = f"{RANKS} ranks, {SLOTS} slots, 1,114-byte frames {variant}"
        counted = {"CPU ns a frame": process.cpu_ns}
        run.add(Series(what, name, "veth, not shaped", "frames/s", process.frames_per_s, {}, counted))
    if bmv2 := loaded.get((BMV2, _ONE_BY_ONE)):
        run.ratio(_OVER_BMV2.name, loaded[EMBEDDED, _ONE_BY_ONE].frames_per_s, bmv2.frames_per_s)
        run.note("The threshold is about frames one by one for both; BMv2 does not take super-frames.")


def bmv2_text() -> str:
    """Return version and build of BMv2; how it was optimised cannot be read from a program."""
    version = run_command([targets.BMV2, "--version"]).strip()
    path = shutil.which(targets.BMV2) or ""
    with open(path, "rb") as program:
        logs = b"Processing packet received on port" in program.read()
    build = "with" if logs else "without"
    return f"BMv2 {version.split('-')[0]} as installed, {build} its logging macros; optimisation not known"


CASE = Case(
    "switch-veth",
    "frames/s of BMv2 and of the embedded switch on veth interfaces",
    measure,
    needs=(NETWORKS,),
    thresholds=(_OVER_BMV2,),
)
