"""docs/deploy.md: its commands are executed as they stand there, each machine a network namespace with its own home.

What the test adds: the packages of this environment in place of an index, and an `scp` that copies between the homes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from p4reduce_lab.network import Interface, Namespace, NetworkBuilder
from p4reduce_lab.processes import Child, Children
from p4reduce_runtime.cache import usable_folder
from rigs.limits import LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
NAMES = dict(re.findall(r"`(\w+)` \((10\.0\.0\.\d+)\)", PAGE))
FILES = re.findall(r"(server|node1)\s`(\w+\.toml)`:\n\n```toml\n(.*?)```", PAGE, re.DOTALL)
"""Machine, name and text of each file."""
READY = r"\bready\b|Adding interface eth2"
"""The text that switch and controller print when they are ready, and BMv2's."""
LEFT_OUT = (".git", ".venv", "out", "tests")
SCP = """#!/bin/sh
for last; do :; done
while [ $# -gt 1 ]; do cp "$1" "$MACHINES/${last%%:*}/${last#*:}"; shift; done
"""
BYTES = 4 * 660 * 20_000
"""Bytes that the switch receives at least: 4 ranks, 660 steps, half of 9,802 float32. Blocks of zeros are not sent."""
needs_bmv2 = pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH")


@dataclass(frozen=True)
class Command:
    machines: tuple[str, ...]
    text: str
    runs: bool
    """Whether it runs until it is stopped."""


def commands(heading: str) -> list[Command]:
    found, machines, runs = [], (), False
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL):
        for line in block.replace("\\\n", "").splitlines():
            if line.startswith("# "):
                machines, runs = tuple(name for name in NAMES if re.search(rf"\b{name}\b", line)), "of its own" in line
            else:
                found.append(Command(machines, line, runs))
    return found


def walk(heading: str) -> list[Command]:
    """The commands of the whole walk of a section, with what it names in place of those of another."""
    first, plain, ethernet = map(commands, ("Install", "Train", "Switches on Ethernet"))
    doctor = next(number for number, command in enumerate(plain) if command.text == "p4reduce doctor")
    tls = commands("Train with TLS") + plain[doctor:]
    if heading == "Two racks":
        at = next(number for number, command in enumerate(tls) if "controller run" in command.text)
        everywhere = [replace(command, machines=tuple(NAMES)) for command in first]
        return [*everywhere, *tls[:at], *commands(heading), *tls[at + 1 :]]
    embedded, controller, bmv2 = ethernet
    own = {
        "Train": plain,
        "Hosts only": commands("Hosts only") + plain[doctor:],
        "Train with TLS": tls,
        "Embedded": [embedded, controller, *plain[2:]],
    }
    return first + own.get(heading, [bmv2, controller, *plain[2:]])


@dataclass
class Machine:
    """A namespace, a home, and what its user has entered that later commands need."""

    name: str
    namespace: Namespace | None
    """The namespace; None for this machine's own."""
    home: Path
    children: Children
    entered: list[str] = field(default_factory=list)
    started: int = 0

    @property
    def checkout(self) -> Path:
        return self.home / "p4reduce"

    def start(self, text: str) -> Child:
        script = "\n".join(("set -e", f"cd {self.checkout}", *self.entered, f"exec {text}"))
        variables = {
            "HOME": str(self.home),
            "MACHINES": str(self.home.parent),
            "P4REDUCE_CACHE_DIR": str(usable_folder()),  # else each machine compiles
            "PATH": f"{self.home.parent}/bin:{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip's spelling of "without isolation"
            "PIP_NO_DEPS": "1",
            "PIP_NO_INDEX": "1",
        }
        others = (name for name in os.environ if name.startswith(("PYTHON", "P4REDUCE")))
        unset = (word for name in set(others) - set(variables) for word in ("-u", name))
        self.started += 1
        words = [*(self.namespace.within if self.namespace else ()), "env", *unset, "bash", "-c", script]
        return self.children.start(f"{self.name}-{self.started}", words, variables)

    def enter(self, command: Command) -> Child | None:
        """Enter it at a prompt; return the program that still runs."""
        if command.text.startswith((". ", "export ")) or re.match(r"\w+=", command.text):
            self.entered.append(command.text)
            return None
        child = self.start(command.text)
        if command.runs:
            child.wait_line(READY, LIMIT_S)
            return None
        if command.text.startswith("torchrun"):  # the hosts' at the same time
            return child
        self.finish(child)
        if " -m venv " in command.text:
            (site,) = self.checkout.glob(".venv/lib/python*/site-packages")
            (site / "index.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        return None

    def finish(self, child: Child) -> str:
        child.wait(LIMIT_S)
        output = child.log.read_text(encoding="utf-8")
        assert child.status == 0, f"{self.name}: {output}"
        return output

    def datagrams(self) -> int:
        """UDP datagrams, or runs of them, that came in: torchrun and gloo send none."""
        assert self.namespace is not None
        _, counts = re.findall(r"^Udp:.*", self.namespace.run("cat", "/proc/net/snmp"), re.MULTILINE)
        return int(counts.split()[1])

    def received(self, interface: str) -> int:
        assert self.namespace is not None
        (link,) = json.loads(self.namespace.run("ip", "-json", "-statistics", "link", "show", interface))
        return int(link["stats64"]["rx"]["bytes"])


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """The machines that the page names, with a copy of the checkout each, and one network."""
    tmp_path.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "scp").write_text(SCP, encoding="utf-8")
    (tmp_path / "bin" / "scp").chmod(0o755)
    with Children(tmp_path) as children:
        network = NetworkBuilder(children)
        wire = network.add_namespace("wire")
        network.add_bridge("wire", wire)
        made = {}
        for number, (name, address) in enumerate(NAMES.items()):
            home = tmp_path / name
            shutil.copytree(ROOT, home / "p4reduce", ignore=shutil.ignore_patterns(*LEFT_OUT))
            made[name] = Machine(name, network.add_namespace(f"namespace-{name}"), home, children)
            port = Interface(f"port{number}", wire, bridge="wire")
            network.add_veth(Interface("eth0", made[name].namespace, address=f"{address}/24"), port)
        for machine, name, text in FILES:
            (made[machine].checkout / name).write_text(text, encoding="utf-8")
        for number in (1, 2):
            end = Interface("eth1", made[f"node{number}"].namespace, address=f"10.0.1.{number + 1}/24", offloads=False)
            network.add_veth(end, Interface(f"eth{number}", made["server"].namespace, offloads=False))
        yield made


def test_a_first_training_takes_few_commands() -> None:
    assert [len(walk(heading)) for heading in ("Train", "Hosts only", "Train with TLS")] == [10, 11, 15]
    assert [name for _, name, _ in FILES] == ["hosts.toml", "tls.toml", "racks.toml"]


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: network namespaces and interfaces")
@pytest.mark.skipif(
    not all(map(shutil.which, ("ethtool", "ip", "nsenter", "unshare"))),
    reason="needs ethtool, ip (iproute2), nsenter and unshare (util-linux) on PATH",
)
@pytest.mark.parametrize(
    ("name", "interfaces"),
    [
        ("Train", ["eth0"]),
        ("Hosts only", []),
        ("Train with TLS", ["eth0"]),
        ("Two racks", ["eth0"]),
        ("Embedded", ["eth1", "eth2"]),
        pytest.param("BMv2", ["eth1", "eth2"], marks=[pytest.mark.bmv2, needs_bmv2]),
    ],
)
def test_a_newcomer_trains_by_the_page_alone(machines: dict[str, Machine], name: str, interfaces: list[str]) -> None:
    trainings = []
    for command in walk(name):
        for machine in map(machines.__getitem__, command.machines):
            child = machine.enter(command)
            if child is not None:
                trainings.append((machine, child))
    outputs = [machine.finish(child) for machine, child in trainings]
    assert len(outputs) == 2 and re.search(r"^test accuracy 9\d\.\d+ %$", outputs[0], re.MULTILINE), outputs
    if not interfaces:
        assert min(machines[node].datagrams() for node in ("node1", "node2")) > 660, "each step goes to the switches"
        return
    least = BYTES // 3 if name == "Two racks" else BYTES  # each rack sends one sum
    assert sum(map(machines["server"].received, interfaces)) > least, "gradients go to the switch"
