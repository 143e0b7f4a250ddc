"""A job over two BMv2 switches side by side, ranks in network namespaces with an interface to each of them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from p4reduce_lab.addresses import free_address
from p4reduce_lab.network import Interface, NetworkBuilder
from p4reduce_lab.processes import P4REDUCE, Children
from p4reduce_runtime.settings import toml_table
from p4reduce_testbed import targets
from rigs.limits import LIMIT_S

RANKS = range(2)
SWITCHES = ("a", "b")
SERVER = "10.9.0.1"
RANK = f"""
import sys
import numpy as np
import p4reduce

options = {{"controller": "{SERVER}:9600", "timeout_s": {LIMIT_S}, "collective_timeout_s": {LIMIT_S}, "rejoin": True}}
comm = p4reduce.join("train", rank=int(sys.argv[1]), world_size={len(RANKS)}, insecure=True, **options)
own = np.arange(20_000, dtype=np.int32) * (1 + comm.rank)
while True:
    own[0] = len(comm.lease.switches)
    total = comm.all_reduce(own)
    np.testing.assert_array_equal(total[1:], 3 * np.arange(1, len(own)))
    if total[0] == 2 * {len(SWITCHES)}:
        print("over both", flush=True)
    elif total[0] == 2:
        break
comm.close()
"""


@pytest.mark.fault(
    "SIGKILL of one of two BMv2 switches side by side, while ranks with `rejoin=True` sum: they go on over the other"
)
@pytest.mark.bmv2
@pytest.mark.processes
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: network namespaces and interfaces")
@pytest.mark.skipif(shutil.which(targets.BMV2) is None, reason="simple_switch_grpc is not on PATH")
@pytest.mark.skipif(
    not all(map(shutil.which, ("ip", "nsenter", "unshare"))),
    reason="needs ip (iproute2), nsenter and unshare (util-linux) on PATH",
)
def test_a_job_sums_over_two_bmv2_and_goes_on_over_one(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        network = NetworkBuilder(children)
        server, *hosts = (network.add_namespace(name) for name in ("server", *map(str, RANKS)))
        network.add_bridge("control", server, f"{SERVER}/24")
        for rank, host in zip(RANKS, hosts, strict=True):
            port = Interface(f"control{rank}", server, bridge="control")
            network.add_veth(Interface("eth0", host, address=f"10.9.0.{2 + rank}/24"), port)
            for number, name in enumerate(SWITCHES, 1):
                end = Interface(f"eth{number}", host, address=f"10.9.{number}.{1 + rank}/24")
                network.add_veth(end, Interface(f"{name}{rank}", server))
        lines, switches = [], []
        for number, name in enumerate(SWITCHES, 1):
            ports, p4runtime = {1 + rank: f"{name}{rank}" for rank in RANKS}, free_address()
            (command,) = targets.commands("bmv2", ports, p4runtime, tmp_path / name)
            switches.append(children.start(name, [*server.within, *command]))
            lines += toml_table("[[switch]]", name=name, address=f"10.9.{number}.254", p4runtime=p4runtime)
        lines += toml_table("[controller]", listen=f"{SERVER}:9600", state_dir=str(tmp_path / "state"))
        config = tmp_path / "controller.toml"
        config.write_text("\n".join([*lines, *toml_table("[security]", insecure=True)]))
        controller = children.start(
            "controller", [*server.within, *P4REDUCE, "controller", "run", "--config", str(config)]
        )
        controller.wait_line("ready", LIMIT_S)
        create = ["job", "create", "train", "--world-size", str(len(RANKS)), "--controller", f"{SERVER}:9600"]
        server.run("env", "P4REDUCE_INSECURE=1", *P4REDUCE, *create)
        ranks = [
            children.start(f"rank {rank}", [*host.within, sys.executable, "-c", RANK, str(rank)])
            for rank, host in zip(RANKS, hosts, strict=True)
        ]
        for child in ranks:
            child.wait_line("over both", LIMIT_S)
        os.kill(switches[1].pid, signal.SIGKILL)
        for child in ranks:
            child.wait(LIMIT_S)
            assert child.status == 0, child.log.read_text()
