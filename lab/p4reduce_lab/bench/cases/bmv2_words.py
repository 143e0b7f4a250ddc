"""How a block is best declared for BMv2: as one wide field, as our program does, or as a register a word."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from functools import partial
from pathlib import Path

from p4reduce_contracts import artifacts
from p4reduce_lab.bench import switches
from p4reduce_lab.bench.case import BMV2, NETWORKS, Case, Need, Run, Series
from p4reduce_lab.bench.cases.switch_veth import RANKS, SLOTS, bmv2_text
from p4reduce_lab.bench.load import ethernet_addresses, make_grant
from p4reduce_lab.bench.numbers import in_turn
from p4reduce_lab.bench.veth_load import VethPeers
from p4reduce_lab.network import NetworkBuilder

_HERE = Path(__file__).resolve().parents[1]
_ROOT = _HERE.parents[2]
_SECONDS, _QUICK_SECONDS = 3.0, 1.0
COMPILER = Need("p4c-bm2-ss on PATH", lambda: shutil.which("p4c-bm2-ss") is not None)
SOURCES = Need("a checkout with p4src/", lambda: (_ROOT / "p4src/build.py").is_file())


def measure(run: Run) -> None:
    """Load BMv2 with either program, in turn."""
    folders = {
        "a field a block": artifacts.find(switches.GEOMETRY),
        "a register a word": compile_per_word(run.folder.resolve()),
    }
    with contextlib.ExitStack() as stack:
        loads = {}
        for number, (name, folder) in enumerate(folders.items()):
            peers = VethPeers(f"w{number}", RANKS, NetworkBuilder(run.children))
            stack.callback(peers.close)
            switch = switches.on_interfaces(run.children, f"switch {name}", "bmv2", peers.inside, folder)
            stack.callback(switch.close)
            grant = make_grant(ethernet_addresses(RANKS), SLOTS)
            switch.install(grant)
            peers.prepare(artifacts.geometry(folder), grant)
            loads[name] = switch, peers

        def load(name: str, seconds: float) -> float:
            switch, peers = loads[name]
            frames, spent = peers.load(seconds, switch.child)
            return frames / spent

        for name in folders:
            load(name, 0.3)  # warms up
        seconds = _QUICK_SECONDS if run.quick else _SECONDS
        found = in_turn({name: partial(load, name, seconds) for name in folders}, run.repetitions)
    for name, rates in found.items():
        run.add(Series(f"{RANKS} ranks, {SLOTS} slots", f"BMv2, {name}", "veth, not shaped", "frames/s", rates))
    run.note(bmv2_text())


def compile_per_word(folder: Path) -> Path:
    """Compile the default geometry with a field and a register a word; return its pipeline folder."""
    shutil.copytree(_ROOT / "p4src", folder / "p4src")
    shutil.copy(_HERE / "column_sum_per_word.p4", folder / "p4src/v1model/column_sum.p4")
    block = folder / "p4src/v1model/block.p4"
    text, one_field = block.read_text(), "    words_t words;"
    assert text.count(one_field) == 1
    block.write_text(text.replace(one_field, " ".join(f"bit<32> word_{word};" for word in range(32))))
    spec = importlib.util.spec_from_file_location("per_word_build", folder / "p4src/build.py")
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    build.compile_geometry("default", folder / "per_word")
    return folder / "per_word"


CASE = Case(
    "bmv2-words",
    "BMv2 with a block as one wide field, and as a register a word",
    measure,
    needs=(NETWORKS, BMV2, COMPILER, SOURCES),
)
