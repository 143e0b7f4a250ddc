"""`p4reduce testbed ...`: emulated hosts and switches on this machine. Needs root."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from p4reduce_testbed.networks import DEFAULT_MANAGEMENT
from p4reduce_testbed.targets import TARGETS

if TYPE_CHECKING:
    from p4reduce_testbed.topology import Host, Topology

TOPOLOGIES = Path(__file__).parent / "topologies"
DEFAULT_TOPOLOGY = "four_workers"
JOB = "testbed"
_RANK_WIDTH = 2


@click.group()
def testbed() -> None:
    """Run p4reduce on emulated hosts.

    They are Mininet's or network namespaces, around one switch process or a tree of them.
    """


def _building(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the network, the switch and the output."""
    for option in (
        click.option(
            "--network",
            type=click.Choice(["mininet", "netns"]),
            default="mininet",
            show_default=True,
            help="What makes the hosts; netns needs no Mininet.",
        ),
        click.option(
            "--target",
            type=click.Choice(TARGETS),
            default="bmv2",
            show_default=True,
            help="The switches: BMv2's simple_switch_grpc, p4reduce's own, or the open SDE's model of a Tofino.",
        ),
        click.option("--pipeline", default="default", show_default=True, help="Geometry name, or a folder."),
        click.option(
            "--management",
            default=DEFAULT_MANAGEMENT,
            show_default=True,
            help="Addresses of the network on which hosts reach the controller.",
        ),
        click.option(
            "--out",
            type=click.Path(path_type=Path, file_okay=False),
            default=Path("out/testbed"),
            show_default=True,
            help="Folder for results and logs.",
        ),
    ):
        command = option(command)
    return command


@testbed.command()
@click.argument("topology", type=click.Path(path_type=Path, dir_okay=False), default=DEFAULT_TOPOLOGY)
@_building
@click.option("--exec", "command", help="Run this on every host; {rank}, {host}, {ip} and {world_size} are replaced.")
@click.option("--job", "name", default=JOB, show_default=True, help="The job made for the hosts.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds for --exec. [default: any]")
def run(topology: Path, command: str | None, name: str, timeout: float | None, out: Path, **building: str) -> None:
    """Build TOPOLOGY, then run a command on every host, or give Mininet's prompt.

    TOPOLOGY is a JSON file, or one of p4reduce's: four_workers (the default), two_slow_workers, two_racks and
    two_racks_of_four, which have a switch for each rack and one above.
    """
    from p4reduce_testbed.mininet_network import MininetNetwork
    from p4reduce_testbed.testbed import Settings, running_testbed

    if command is None and building["network"] != "mininet":
        raise click.UsageError("the prompt is Mininet's: give --exec, or choose --network mininet")
    with _owned_by_caller(out):
        wanted = _load(topology)
        world_size = len(wanted.hosts)
        with (
            running_testbed(wanted, Settings(**building), out / "logs") as running,
            running.system.job(name, world_size),
        ):
            if command is None:
                assert isinstance(running.network, MininetNetwork)
                environments = {host.name: running.environment(host, name) for host in wanted.hosts}
                running.network.prompt(environments, running.system.controller)
                return
            text = command
            running.run_on_all(
                "exec",
                lambda host: ["sh", "-c", fill_in(text, host, world_size)],
                name,
                on_line=lambda rank, line: click.echo(f"[{rank:>{_RANK_WIDTH}}] {line}"),
                timeout_s=timeout,
            )


@testbed.command()
@click.argument("topology", type=click.Path(path_type=Path, dir_okay=False), default=DEFAULT_TOPOLOGY)
@_building
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Repetitions.")
@click.option("--epochs", type=click.IntRange(min=1), help="Training epochs. [default: the script's own]")
def train(topology: Path, out: Path, seeds: int, epochs: int | None, **building: str) -> None:
    """Train a small model on the hosts of TOPOLOGY, with gloo and over the switch, and compare."""
    from p4reduce_testbed.testbed import Settings
    from p4reduce_testbed.train import train_on_testbed

    with _owned_by_caller(out):
        train_on_testbed(_load(topology), Settings(**building), out, seeds, epochs)


def fill_in(command: str, host: Host, world_size: int) -> str:
    """Replace {rank}, {host}, {ip} and {world_size} in `command`; other braces stay."""
    values = {"rank": host.rank, "host": host.name, "ip": host.ip, "world_size": world_size}
    for key, value in values.items():
        command = command.replace("{" + key + "}", str(value))
    return command


def _load(path: Path) -> Topology:
    from p4reduce_testbed.topology import load

    packaged = TOPOLOGIES / f"{path}.json"
    return load(packaged if len(path.parts) == 1 and packaged.is_file() and not path.exists() else path)


@contextlib.contextmanager
def _owned_by_caller(folder: Path) -> Iterator[None]:
    """Change the owner of what was written under sudo to the calling user."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        user, group = (os.environ.get(key, "") for key in ("SUDO_UID", "SUDO_GID"))
        if os.geteuid() == 0 and user.isdecimal() and group.isdecimal():
            for path in (folder, *folder.rglob("*")):
                os.chown(path, int(user), int(group), follow_symlinks=False)
