"""The walks of docs/architecture.md are what a run does: it enters their files, in that order."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from p4reduce_runtime import kernels
from rigs import system as rigs_system
from rigs.fork_server import Forked, ForkServer
from rigs.limits import LIMIT_S
from rigs.system import Process, start_controller, start_switch

ROOT = Path(__file__).parents[2]
RIGS = ROOT / "tests" / "rigs"
LEAVES = ("leaf1", "leaf2")
WALKS = {
    "Path of a sum on one host": ("worker/p4reduce/", {"one host"}),
    "Path of a sum on two hosts": ("worker/p4reduce/", {"two hosts"}),
    "Path of a gradient": ("worker/p4reduce/", {"hook"}),
    "Path of a gradient through the torch backend": ("worker/p4reduce/", {"rank"}),
    "Path of a frame": ("softswitch/p4reduce_switch/", {"leaf1"}),
    "Path of a frame through two racks": ("", {"rank", "leaf1", "root", "controller"}),
    "Path of a job": ("", {"command", "controller", "leaf1"}),
}
"""Headings, the folder that the paths below each are in, and the programs that enter them."""
STEP = re.compile(r"^\d+\. (?:(\w+): )?`([^`]+)`", re.MULTILINE)

Entered = dict[str, list[tuple[int, str]]]
"""Program -> the files that it entered, each after the time."""


def walk(heading: str) -> list[tuple[str, str]]:
    """The steps of a walk: the program where the page names one, and the file, from the root."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [(program, WALKS[heading][0] + path) for program, path in STEP.findall(section)]


def is_interpreted(path: str) -> bool:
    """Whether Python enters it: not where all functions are compiled."""
    return "\n@kernel(" not in (ROOT / path).read_text() and path.endswith(".py")


def test_what_a_walk_names_of_the_switch_program_is_in_its_file() -> None:
    """Machine code is not traced; `tests/p4src/truth_table.toml` has what it does to `level` and `seen`."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("\n## Path of a frame through two racks\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. \w+: `(p4src/\S+\.p4)`(.*?)(?=^\d|\n\n)", section, re.MULTILINE | re.DOTALL)
    named = [(file, name) for file, text in steps for name in re.findall(r"`(\w+)`", text)]
    assert len(named) >= 10
    assert [(file, name) for file, name in named if not re.search(rf"\b{name}\b", (ROOT / file).read_text())] == []


def traced(folder: Path, name: str) -> list[str]:
    return [str(RIGS / "entered_files.py"), str(folder / name)]


@contextmanager
def two_racks(folder: Path) -> Iterator[str]:
    """A root, two leaves and a controller, each traced; yields the job service's address."""
    with ExitStack() as stack:

        def start(name: str, program: Callable[..., Process], *arguments: object, **more: object) -> Process:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(rigs_system, "COMMAND", [*traced(folder, name), "p4reduce"])
                started = program(folder, *arguments, **more)
            stack.callback(started.end, signal.SIGTERM)
            return started

        root = start("root", start_switch)
        above = root.address("UDP")
        leaves = {name: start(name, start_switch, uplink=above) for name in LEAVES}
        paths = {"root": above} | {name: leaf.address("UDP") for name, leaf in leaves.items()}
        yield start("controller", start_controller, root, leaves=leaves, paths=paths).address("jobs on")


@pytest.fixture(scope="module")
def entered(torch_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Entered:
    """While a job is made and its one rank trains two steps, and two ranks sum by the backend in three ways.

    They are in two racks, and without a controller on one host and on two.
    """
    folder = tmp_path_factory.mktemp("walks")

    def start(name: str, *command: str, variables: Mapping[str, str]) -> Forked:
        program = [*traced(folder, name), *command]
        return torch_server.start(folder / f"{name}.log", *program, environment={**os.environ, **variables})

    list(kernels.warm())  # under a trace compiling would take minutes
    with two_racks(folder) as address:
        create = ["p4reduce", "job", "create", "walk", "--world-size", "1", "--slots", "8", "--controller", address]
        assert start("command", *create, variables={}).wait(LIMIT_S) == 0
        variables = {"P4REDUCE_CONTROLLER": address, "P4REDUCE_SWITCH": LEAVES[0]}
        alone = {"P4REDUCE_JOB": "walk", "RANK": "0", "WORLD_SIZE": "1"}
        train = str(RIGS / "one_rank_training.py")
        assert start("hook", train, variables={**variables, **alone}).wait(LIMIT_S) == 0
        script = str(RIGS / "backend_rank.py")

        def sum_of_two(name: str, of_rank: Callable[[int], Mapping[str, str]]) -> None:
            """The first rank's files are those of the program `name`."""
            store = str(folder / f"{name} store")
            ranks = [
                start(each, script, store, str(rank), "2", variables=of_rank(rank))
                for rank, each in enumerate((name, f"{name} other"))
            ]
            assert [rank.wait(LIMIT_S) for rank in ranks] == [0, 0]

        sum_of_two("rank", lambda rank: {**variables, "P4REDUCE_SWITCH": LEAVES[rank]})
    sum_of_two("one host", lambda rank: {"P4REDUCE_HOSTS": "on"})
    sum_of_two("two hosts", lambda rank: {"P4REDUCE_HOSTID": f"host{rank}", "GLOO_SOCKET_IFNAME": "lo"})
    return {
        name: [(int(when), path) for when, path in map(str.split, (folder / name).read_text().splitlines())]
        for name in set().union(*(programs for _, programs in WALKS.values()))
    }


@pytest.mark.slow
@pytest.mark.processes
def test_a_run_enters_the_files_of_a_walk_in_order(entered: Entered) -> None:
    for heading in WALKS:
        check(heading, entered)


def check(heading: str, entered: Entered) -> None:
    steps = walk(heading)
    interpreted = [(program, path) for program, path in steps if is_interpreted(path)]
    assert len(interpreted) == len(set(interpreted)) > 5, "each step is named once"
    at = 0
    if heading == "Path of a gradient":
        at = min(when for when, path in entered["hook"] if path.endswith("pytorch/ddp.py"))
    for program, path in interpreted:
        programs = {program} if program else WALKS[heading][1]
        after = [when for name in programs for when, file in entered[name] if file == path and when >= at]
        assert after, f"{program or heading}: {path} is not entered after what the page names before it"
        at = min(after)
