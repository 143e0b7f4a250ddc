"""The first lines of README.md, executed: a script for gloo trains after one word of it is changed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.test_docs_deploy import LEFT_OUT, Command, Machine
from p4reduce_lab.network import Interface, NetworkBuilder
from p4reduce_lab.processes import Children

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")[0]
LINE = re.search(r'```python\n(.*"p4reduce".*)\n```', PAGE)
SHELL = re.search(r"```sh\n(pip install .*?)#.*\n(torchrun .*)\n```", PAGE)
SCRIPT = """
import torch
from torch.nn.functional import mse_loss

torch.distributed.init_process_group("gloo")
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.manual_seed(1)
inputs, targets = torch.randn(24, 20), torch.randn(24, 1)
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(10):
    optimizer.zero_grad()
    mse_loss(ddp(inputs[rank::size]), targets[rank::size]).backward()
    optimizer.step()
    if rank == 0:
        print("loss", mse_loss(model(inputs), targets).item())
torch.distributed.destroy_process_group()
"""
"""A training whose losses are the same for all numbers of ranks that divide 24, but for roundings."""


def losses(text: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss (\S+)", text)]


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    with Children(tmp_path_factory.mktemp("logs")) as started:
        yield started


@pytest.fixture(scope="module")
def machine(children: Children, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """This machine, where README's lines are entered in a new environment."""
    assert LINE is not None and SHELL is not None
    made = Machine("here", None, tmp_path_factory.mktemp("home"), children)
    shutil.copytree(ROOT, made.checkout, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for text in ("python3 -m venv .venv", ". .venv/bin/activate", "export OMP_NUM_THREADS=1", SHELL[1]):
        made.enter(Command((), text, runs=False))
    script = made.checkout / "train.py"
    changed = SCRIPT.replace("gloo", "p4reduce")
    assert LINE[1] in changed
    script.with_name("gloo.py").write_text(SCRIPT, encoding="utf-8")
    script.write_text(changed, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def wanted(machine: Machine) -> list[float]:
    assert SHELL is not None
    return losses(machine.finish(machine.start(SHELL[2].replace("train.py", "gloo.py"))))


@pytest.mark.slow
@pytest.mark.processes
def test_one_machine_trains_by_the_readme_alone(machine: Machine, wanted: list[float]) -> None:
    assert SHELL is not None
    found = losses(machine.finish(machine.start(SHELL[2])))
    assert len(found) == 10 and found == pytest.approx(wanted, rel=1e-4)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: network namespaces and interfaces")
@pytest.mark.skipif(not all(map(shutil.which, ("ip", "nsenter", "unshare"))), reason="needs iproute2 and util-linux")
def test_three_machines_train_by_the_readme_alone(machine: Machine, wanted: list[float], children: Children) -> None:
    network = NetworkBuilder(children)
    wire = network.add_namespace("readme-wire")
    network.add_bridge("wire", wire)
    nodes = []
    for number in range(3):
        namespace = network.add_namespace(f"readme-node{number}")
        node = Machine(f"node{number}", namespace, machine.home, children, [*machine.entered])
        end = Interface("eth0", namespace, address=f"10.0.0.{number + 1}/24")
        network.add_veth(end, Interface(f"port{number}", wire, bridge="wire"))
        node.entered.append("export GLOO_SOCKET_IFNAME=eth0")  # as over gloo
        nodes.append(node)
    several = "torchrun --nnodes 3 --node-rank {} --master-addr 10.0.0.1 --nproc-per-node 1 train.py"
    started = [node.start(several.format(number)) for number, node in enumerate(nodes)]
    found = [losses(node.finish(child)) for node, child in zip(nodes, started, strict=True)]
    assert found == [pytest.approx(wanted, rel=1e-4), [], []]
    assert all(node.datagrams() > 10 for node in nodes)
