"""Testbeds that are really built: what is in them, and that nothing of them is left, however they end.

Each test has a machine of its own: a network and a mount namespace, so that tests can run at the same time and beside
other testbeds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from p4reduce_lab.errors import MissingToolError
from p4reduce_testbed import check_sums
from p4reduce_testbed.mininet_network import import_mininet
from rigs.limits import LIMIT_S
from rigs.running import with_text

OFFLOADS = (
    "rx-checksumming",
    "tx-checksumming",
    "scatter-gather",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
)
"""The names of offloads in `ethtool -k`."""
POLL_S = 0.02
NOT_IGNORED = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # as nohup has it
CLI = [sys.executable, "-c", f"{NOT_IGNORED}; from p4reduce_testbed.cli import testbed; testbed()"]
CHECK_SUMS = Path(check_sums.__file__)
MININET_LIMITS = "*** Error setting resource limits. Mininet's performance may be affected.\n"
"""The line that Mininet prints in a network namespace, because some of the limits are the whole machine's."""
TRACE = "P4REDUCE_TEST_TRACE"
"""The environment variable of the testbed that a test starts, and so of all its descendants."""

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="takes root: network namespaces and interfaces"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="ip (iproute2) is not on PATH"),
    pytest.mark.skipif(shutil.which("nsenter") is None, reason="nsenter (util-linux) is not on PATH"),
    pytest.mark.skipif(shutil.which("ethtool") is None, reason="ethtool is not on PATH"),
]
needs_bmv2 = pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH")
needs_tc = pytest.mark.skipif(shutil.which("tc") is None, reason="tc (iproute2) is not on PATH")
needs_nft = pytest.mark.skipif(shutil.which("nft") is None, reason="nft (nftables) is not on PATH")


def mininet_is_missing() -> bool:
    try:
        import_mininet("util")
    except MissingToolError:
        return True
    return False


needs_mininet = pytest.mark.skipif(
    mininet_is_missing() or shutil.which("mnexec") is None, reason="Mininet is not installed"
)
NETWORKS = ["netns", pytest.param("mininet", marks=needs_mininet)]
TARGETS = ["embedded", pytest.param("bmv2", marks=[pytest.mark.bmv2, needs_bmv2])]


class Machine:
    """A network of its own, with `lo` alone, and a folder of its own for named namespaces."""

    def __init__(self) -> None:
        script = "mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link set lo up && echo ready && exec cat"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            self.close()
            pytest.skip("namespaces cannot be made here")
        of_holder = f"/proc/{self._holder.pid}/ns"
        self.within = ["nsenter", f"--net={of_holder}/net", f"--mount={of_holder}/mnt", "--"]

    def run(self, *command: str) -> str:
        return subprocess.run([*self.within, *command], capture_output=True, text=True, check=True).stdout

    def links(self) -> list[str]:
        return sorted(link["ifname"] for link in json.loads(self.run("ip", "-j", "link")))

    def close(self) -> None:
        self._holder.communicate()


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    yield machine
    machine.close()


@dataclass
class Started:
    process: subprocess.Popen[str]
    trace: str

    def until(self, text: str) -> None:
        """Wait until it writes a line with `text`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text in line:
                return
        pytest.fail(f"it ended without {text!r} and printed {self.finish()[1]}")

    def finish(self, given: str | None = None) -> tuple[int, str, str]:
        out, err = self.process.communicate(given, timeout=LIMIT_S)
        return self.process.returncode, out, err.replace(MININET_LIMITS, "")


@pytest.fixture
def found_as_left(machine: Machine) -> Iterator[str]:
    """A trace for one testbed; afterwards the machine has to be as it was, with nothing running."""
    before, trace = machine.links(), uuid.uuid4().hex
    yield trace
    deadline = time.monotonic() + LIMIT_S
    while (left := (with_text(f"{TRACE}={trace}"), machine.links())) != ({}, before) and time.monotonic() < deadline:
        time.sleep(POLL_S)  # after SIGKILL the kernel removes links a moment after their namespaces' processes
    assert left == ({}, before)


@pytest.fixture
def start(machine: Machine, found_as_left: str, tmp_path: Path) -> Iterator[Any]:
    """Starts `p4reduce testbed run`, by default two hosts in namespaces around the embedded switch.

    `packaged` names one of our topologies instead.
    """

    started: list[subprocess.Popen[str]] = []

    def starting(
        *options: str,
        network: str = "netns",
        target: str = "embedded",
        pipeline: str = "small",
        packaged: str = "",
        **changes: Any,
    ) -> Started:
        topology = tmp_path / "topology.json"
        topology.write_text(json.dumps(changes.pop("topology", None) or a_topology(**changes)))
        building = ["--network", network, "--target", target, "--pipeline", pipeline, "--out", str(tmp_path / "out")]
        process = subprocess.Popen(
            [*machine.within, *CLI, "run", packaged or str(topology), *building, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, TRACE: found_as_left},
        )
        started.append(process)
        return Started(process, found_as_left)

    yield starting
    for process in started:
        if process.poll() is None:  # the test has failed
            process.terminate()
        process.communicate(timeout=LIMIT_S)


def a_topology(commands: tuple[str, ...] = (), tail: tuple[Any, ...] = ()) -> dict[str, Any]:
    return {
        "hosts": {
            "h1": {"ip": "10.0.0.1/24", "mac": "02:00:00:00:01:01"},
            "h2": {"ip": "10.0.0.2/24", "mac": "02:00:00:00:01:02", "commands": list(commands)},
        },
        "switches": {"t1": {}},
        "links": [["h1", "t1-p1"], ["h2", "t1-p2", *tail]],
    }


@pytest.mark.parametrize("network", NETWORKS)
def test_a_command_on_every_host(start: Any, network: str) -> None:
    script = 'echo "$RANK of $WORLD_SIZE: {rank} {host} {ip} $MASTER_ADDR $P4REDUCE_JOB $GLOO_SOCKET_IFNAME"'
    status, out, err = start("--exec", f"{script}; ip -br address", network=network).finish()
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    for rank, host in enumerate(("h1", "h2")):
        mine = [" ".join(words[2:] if words[0] == "[" else words) for words in lines if f"{rank}]" in words[:2]]
        address = f"10.0.0.{rank + 1}"
        assert mine[0] == f"{rank} of 2: {rank} {host} {address} 10.0.0.1 testbed eth0"
        assert any(f"{address}/24" in line and line.startswith("eth0") for line in mine)
        assert any(line.startswith("mgmt0") and f"169.254.210.{rank + 2}/24" in line for line in mine)
        assert len(mine) == 4  # the echo, lo, eth0 and mgmt0: nothing else


def sums_command(sums: int) -> str:
    return f"python -P {CHECK_SUMS} --sums {sums}"


def assert_sums(out: str, sums: int, hosts: int = 2) -> list[dict[str, Any]]:
    """Return what each host printed of its sums."""
    texts = [line.partition("] ")[2] for line in out.splitlines()]
    found = [json.loads(text) for text in texts if text.startswith("{")]  # else a log line of a slow machine
    assert [one["sums"] for one in found] == [sums] * hosts
    assert [one["mismatched_words"] for one in found] == [0] * hosts and found[0]["words"] > 1000
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("network", NETWORKS)
def test_sums_over_a_tree_of_switches(start: Any, network: str, target: str) -> None:
    options = {"network": network, "target": target, "packaged": "two_racks"}
    status, out, err = start("--exec", sums_command(30), **options).finish()
    assert (status, err) == (0, "")
    assert_sums(out, 30, 4)


def a_chain(*tail: Any) -> dict[str, Any]:
    """A switch below a switch below a switch; a host at the lowest, and one at the top."""
    return a_topology() | {
        "switches": {"t1": {}, "t2": {}, "t3": {}},
        "links": [["h1", "t1-p1"], ["h2", "t3-p1"], ["t3-p2", "t2-p2", *tail], ["t2-p9", "t1-p9"]],
    }


@pytest.mark.fault(
    "3 % loss each way between two of three switches in a chain, in network namespaces: all sums are right; "
    "frames were sent again"
)
@needs_nft
def test_sums_over_a_chain_of_switches_survive_loss_between_two_of_them(start: Any) -> None:
    status, out, err = start("--exec", sums_command(30), topology=a_chain(None, None, 3)).finish()
    assert (status, err) == (0, "")
    assert sum(host["retransmissions"] for host in assert_sums(out, 30)) > 0


def train(machine: Machine, trace: str, out: Path, *options: str) -> dict[str, Any]:
    """Run `p4reduce testbed train` for an epoch; return its report."""
    for module in ("torch", "sklearn", "matplotlib"):
        pytest.importorskip(module)
    command = [*machine.within, *CLI, "train", "--epochs", "1", "--out", str(out), *options]
    environment = {**os.environ, TRACE: trace}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    assert [run["name"] for run in report["runs"]] == ["gloo-dense", "p4reduce-dense", "p4reduce-adacomp"]
    sums = report["testbed"]["sums"]
    assert sums["sums"] > 0 and sums["mismatched_words"] == 0
    return report


@pytest.mark.bmv2
@needs_bmv2
@pytest.mark.parametrize(
    ("network", "pipeline"), [pytest.param("mininet", "default", marks=needs_mininet), ("netns", "tofino1-4x8")]
)
def test_training_over_bmv2(machine: Machine, found_as_left: str, tmp_path: Path, network: str, pipeline: str) -> None:
    report = train(machine, found_as_left, tmp_path, "--network", network, "--pipeline", pipeline)
    gloo, dense, _ = report["runs"]
    assert gloo["losses"] == pytest.approx(dense["losses"], abs=1e-3)
    assert gloo["up_bytes_per_step"] > dense["up_bytes_per_step"] > 0
    assert report["testbed"]["pipeline"] == pipeline
    assert {"machine", "ring_bytes_formula", "testbed"} < set(report)


@pytest.mark.parametrize("target", TARGETS)
def test_training_over_a_tree_ends_with_the_weights_of_one_switch(
    machine: Machine, found_as_left: str, tmp_path: Path, target: str
) -> None:
    """The ranks are the same, and their sums do not depend on which switch adds what."""
    one, tree = (
        train(machine, found_as_left, tmp_path / name, name, "--network", "netns", "--target", target)
        for name in ("four_workers", "two_racks")
    )
    for flat, of_tree in zip(one["runs"][1:], tree["runs"][1:], strict=True):
        assert of_tree["weights"] == flat["weights"], flat["name"]


@pytest.mark.parametrize("network", NETWORKS)
def test_a_failing_worker_ends_the_testbed(start: Any, network: str) -> None:
    command = "[ {rank} = 0 ] || { echo gone wrong; exit 3; }; sleep 600 & wait"
    status, _, err = start("--exec", command, network=network).finish()
    assert status == 1
    assert "exec h2 failed with status 3" in err and "| gone wrong" in err


@pytest.mark.parametrize("network", NETWORKS)
def test_a_failing_step_is_undone(start: Any, network: str) -> None:
    status, _, err = start("--exec", "true", network=network, commands=("ip link set eth9 up",)).finish()
    assert status == 1
    assert err.startswith("Error: hosts.h2.commands: `") and "eth9" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("network", "number"),
    [
        *(("netns", number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)),
        *(pytest.param("mininet", number, marks=needs_mininet) for number in (signal.SIGINT, signal.SIGKILL)),
    ],
)
def test_a_signal_during_a_run_ends_with_a_teardown(start: Any, network: str, number: signal.Signals) -> None:
    """Also of the links between switches; a second interrupt does not stop it."""
    started = start("--exec", "echo up; (trap '' TERM; sleep 600) & wait", network=network, topology=a_chain())
    started.until("up")
    assert any("sleep 600" in line for line in with_text(f"{TRACE}={started.trace}").values())
    for _ in range(2 if number == signal.SIGINT else 1):
        started.process.send_signal(number)
    status, _, _ = started.finish()
    assert status == (-number if number in (signal.SIGHUP, signal.SIGKILL) else 1)


@needs_mininet
def test_the_prompt(start: Any) -> None:
    status, out, err = start(network="mininet").finish("h1 echo from $RANK to h2\np4reduce job list\nexit\n")
    assert status == 0
    assert "from 0 to 10.0.0.2" in err
    assert "testbed" in out and "FORMING" in out


@needs_tc
@needs_nft
def test_links_have_their_rate_and_loss_and_no_offloads(start: Any, machine: Machine) -> None:
    """The links are those of hosts, in both directions, and those between switches."""
    topology = a_chain(None, 20)
    topology["links"][1] += [None, 20, 1.5]
    show = "tc qdisc show dev eth0; nft list ruleset; ethtool -k eth0; echo up; sleep 600"
    started = start("--exec", show, topology=topology)
    lines: list[str] = []
    assert started.process.stdout is not None
    while sum("] up" in line for line in lines) < 2:
        assert (line := started.process.stdout.readline()), "it ended"
        lines.append(line)
    first, second = ["".join(line for line in lines if line.startswith(f"[ {rank}]")) for rank in (0, 1)]
    assert "tbf" in second and "20Mbit" in second and second.count("numgen random mod 100000 < 1500") == 2
    assert "tbf" not in first
    for interface in ("t3-eth1", "t3-eth2", "t2-eth2"):
        assert "tbf" in (shown := machine.run("tc", "qdisc", "show", "dev", interface)) and "20Mbit" in shown
    assert "tbf" not in machine.run("tc", "qdisc", "show", "dev", "t2-eth9")
    for name in OFFLOADS:
        assert all(f"{name}: off" in text for text in (first, second, machine.run("ethtool", "-k", "t1-eth1")))
    started.process.send_signal(signal.SIGINT)
    assert started.finish()[0] == 1


@needs_tc
def test_delay_or_the_error_names_the_missing_kernel_module(start: Any) -> None:
    status, out, err = start("--exec", "tc qdisc show dev eth0", tail=("2ms",)).finish()
    if status == 0:
        assert "delay 2ms" in out
    else:
        assert "h2 has a delay of 2 ms, and this kernel has no netem" in err


def test_an_existing_interface_is_an_error(start: Any, machine: Machine) -> None:
    machine.run("ip", "link", "add", "t1-eth2", "type", "bridge")
    status, _, err = start("--exec", "true").finish()
    assert status == 1 and "there already is an interface t1-eth2" in err
    assert "t1-eth2" in machine.links()
    machine.run("ip", "link", "delete", "t1-eth2")
