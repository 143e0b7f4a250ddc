"""The jobs of jobs.toml, which are searched, and the mutants, which must be caught."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from model.calls import Generation, Refusal, Sum, generation
from model.search import Faults, Job
from model.switch import (
    CompiledSwitch,
    LeafAsRoot,
    LeafWithAnotherPartial,
    SideBySide,
    SwitchMLRule,
    without_round_check,
)
from rigs.tree import TREES, TreeRig

EPOCH: Final = 5
SWITCHES: Final[dict[str, Callable[..., CompiledSwitch]]] = {
    "one switch": CompiledSwitch,
    "tree": CompiledSwitch,
    "side by side": SideBySide,
    "SwitchMLRule": SwitchMLRule,
    "without_round_check": partial(CompiledSwitch, mutate=without_round_check),
    "LeafAsRoot": LeafAsRoot,
    "LeafWithAnotherPartial": LeafWithAnotherPartial,
}


@dataclass(frozen=True)
class Searched:
    """A job, the faults it is searched with, and the switch; `small` faults are those that `make test` searches."""

    name: str
    generations: tuple[Generation, ...]
    small: tuple[Faults, ...]
    large: tuple[Faults, ...]
    make_switch: Callable[[Sequence[Generation]], CompiledSwitch]

    def job(self, faults: Faults) -> Job:
        return Job(self.generations, faults, self.make_switch)


def _call(ranks: int, given: dict[str, Any], digit: int) -> Sum | Refusal:
    blocks = given["blocks"]
    held = tuple(map(tuple, given.get("held", [range(blocks)] * ranks)))
    asked = Sum(blocks, held, given.get("slots", 1), digit)
    return Refusal(given["refused_by"], asked) if "refused_by" in given else asked


def _generation(given: dict[str, Any], number: int) -> Generation:
    """Return the job's first leases, or the second ones, for which `again` says what is another."""
    now = {"epoch": 0, "secret": 1, "slots": 1, "side_by_side": [0], **given, **(given["again"] if number else {})}
    shape = TREES.get(given.get("tree", ""))
    ranks = given.get("ranks", 2) if shape is None else TreeRig("small", shape).world_size
    calls = [_call(ranks, call, 1 + number) for call in given["calls"]]
    made = generation(ranks, now["slots"], EPOCH + now["epoch"], calls, now["secret"], shape, now["side_by_side"])
    turned = [
        replace(lease, switches=lease.switches[::-1]) if lease.rank == given.get("turned_round") else lease
        for lease in made.leases
    ]
    return Generation(tuple(turned), made.calls)


def _searched(given: dict[str, Any]) -> Searched:
    usual = "tree" if "tree" in given else "side by side" if "side_by_side" in given else "one switch"
    options = {"shape": TREES[given["tree"]]} if "tree" in given else {}
    make_switch = partial(SWITCHES[given.get("switch", usual)], **options, **given.get("options", {}))
    generations = tuple(_generation(given, number) for number in range(1 + ("again" in given)))
    small, large = (tuple(Faults(**faults) for faults in given.get(size, [])) for size in ("small", "large"))
    return Searched(given["name"], generations, small, large, make_switch)


_TABLE: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
JOBS: Final = tuple(map(_searched, _TABLE["job"]))
MUTANTS: Final = tuple(map(_searched, _TABLE["mutant"]))
