"""Real runs: a loopback case from the command line, and what is left after the benchmark is killed.

And the tensors with blocks of zeros that it sums.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from p4reduce_lab.bench import links
from p4reduce_lab.bench.tensors import ALL_OVERLAP, BLOCK_ELEMENTS, NONE_OVERLAP, RANDOM, Kind, tensor
from p4reduce_lab.reaper import MARK
from rigs.limits import LIMIT_S, wait_until
from rigs.running import children_of, with_text

BENCH = (sys.executable, "-m", "p4reduce_contracts", "bench")


@pytest.mark.slow
@pytest.mark.processes
def test_a_quick_run_of_a_case_writes_everything(tmp_path: Path) -> None:
    command = [*BENCH, "--quick", "--only", "loss", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "share" in done.stdout and "processor cores" in done.stdout
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results) == {"machine", "software", "quick", "seconds", "cases", "not_measured"}
    series = results["cases"]["loss"]["series"]
    assert all(len(each["values"]) == 3 and min(each["values"]) > 0 for each in series), "every single value"
    assert set(series[0]) == {"what", "peer", "link", "unit", "values", "at", "counted", "size", "ranks"}
    assert json.loads((tmp_path / "thresholds.json").read_text()) == []


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
@pytest.mark.parametrize("killed", ["bench", "case"])
def test_no_process_remains_after_kill_9(tmp_path: Path, killed: str) -> None:
    """Nor a link: a case's are in network namespaces that end with the processes."""
    links_before = subprocess.check_output(["ip", "-oneline", "link"])
    command = [*BENCH, "--quick", "--only", "density", "--out", str(tmp_path)]
    environment = {key: value for key, value in os.environ.items() if key != MARK}
    with (tmp_path / "output.log").open("w") as output:
        bench = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        hosts = tmp_path / "quick-cases/density-logs/host-1.log"
        wait_until(lambda: hosts.exists() or bench.poll() is not None)
        assert hosts.exists(), (tmp_path / "output.log").read_text()
        running = with_text(str(tmp_path)).values()
        assert any("sleep infinity" in line for line in running)
        if killed == "bench":
            bench.send_signal(signal.SIGKILL)
        else:
            cases = with_text("p4reduce_lab.bench.run")
            inside = [pid for pid in children_of(bench.pid) if pid in cases]
            os.kill(inside[0], signal.SIGKILL)
        bench.wait(LIMIT_S)
        wait_until(lambda: not with_text(str(tmp_path)), "a process was left behind")
        assert subprocess.check_output(["ip", "-oneline", "link"]) == links_before
    finally:
        bench.kill()
        bench.wait()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
def test_hosts_are_shaped_in_both_directions_or_not_and_removed_with_their_processes(tmp_path: Path) -> None:
    """In a network namespace of its own, as cases are."""
    script = f"""
import sys
from pathlib import Path
from p4reduce_lab.bench import links
from p4reduce_lab.bench.cluster import IN_BRIDGE, Placement
from p4reduce_lab.network import CURRENT, DATA, NetworkBuilder
from p4reduce_lab.processes import Children
CURRENT.run("ip", "link", "set", "lo", "up")
with Children(Path({str(tmp_path)!r})) as children:
    builder = NetworkBuilder(children)
    network = links.build(builder, 2, 1)
    network.shape(links.GBIT_1)
    for placement in (IN_BRIDGE, Placement("server", 1), Placement("hosts", on_each_host=True)):
        print("switches:", [switch.listen for switch in placement.switches(network)])
    before = network.carried()
    calls = "import socket, sys; [socket.socket().connect_ex((sys.argv[1], 9)) for _ in range(60)]"
    network.hosts[0].namespace.run(sys.executable, "-c", calls, network.servers[0].address)
    for one, other in zip(before, network.carried()):
        print("carried:", *(way - earlier > 1000 for way, earlier in zip(other, one)))
    for host in network.hosts + network.servers:
        print(CURRENT.run("tc", "qdisc", "show", "dev", host.outside).strip())
        print(host.namespace.run("tc", "qdisc", "show", "dev", DATA).strip())
    network.shape(links.VETH)
    for host in network.hosts + network.servers:
        print("then:", CURRENT.run("tc", "qdisc", "show", "dev", host.outside).strip())
        print("then:", host.namespace.run("tc", "qdisc", "show", "dev", DATA).strip())
builder.close()
print("left:", CURRENT.run("ip", "-oneline", "link"))
"""
    command = ["unshare", "--net", "--", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    shaped = [line for line in done.stdout.splitlines() if "tbf" in line]
    assert len(shaped) == 6 and all("rate 1Gbit burst 6" in line for line in shaped), done.stdout  # 65536, in ticks
    unshaped = [line for line in done.stdout.splitlines() if line.startswith("then:")]
    assert len(unshaped) == 6 and all("qdisc noqueue" in line for line in unshaped), done.stdout
    lines = [line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith(("switches", "carried"))]
    one, server, hosts = (f"['10.77.0.{numbers}:21072']" for numbers in ("1", "12", "10:21072', '10.77.0.11"))
    assert lines == [one, server, hosts, "True True", "False False", "True True"]
    left = done.stdout.partition("left:")[2]
    assert " lo:" in left and links.BRIDGE not in left and "host" not in left


RANKS, BLOCKS = 4, 400


def blocks_of(kind: Kind, rank: int) -> set[int]:
    filled = tensor(kind, rank, RANKS).reshape(-1, BLOCK_ELEMENTS)
    return set(np.flatnonzero(filled.any(axis=1)).tolist())


@pytest.mark.parametrize(
    ("pattern", "union"), [(ALL_OVERLAP, {40}), (NONE_OVERLAP, {160}), (RANDOM, set(range(41, 160)))]
)
def test_the_share_and_the_overlap(pattern: str, union: set[int]) -> None:
    found = [blocks_of(Kind(BLOCKS * BLOCK_ELEMENTS, 0.1, pattern), rank) for rank in range(RANKS)]
    assert [len(blocks) for blocks in found] == [40] * RANKS
    assert len(set.union(*found)) in union


def test_a_dense_tensor_has_no_zero_block_and_differs_by_rank() -> None:
    kind = Kind(BLOCKS * BLOCK_ELEMENTS)
    assert len(blocks_of(kind, 0)) == BLOCKS
    assert not np.array_equal(tensor(kind, 0, RANKS), tensor(kind, 1, RANKS))
    assert tensor(Kind(BLOCK_ELEMENTS + 5, 0.5), 0, 2).shape == (BLOCK_ELEMENTS + 5,), "a part of a block at the end"
    with pytest.raises(ValueError, match="must overlap"):
        tensor(Kind(BLOCKS * BLOCK_ELEMENTS, 0.5, NONE_OVERLAP), 0, RANKS)
