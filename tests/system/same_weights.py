"""Are the weights after a training equal, bit for bit, wherever its four ranks are? (docs/determinism.md)

    python tests/system/same_weights.py --steps 200

The study's transformer with AdamW, over the torch backend and an embedded switch, on 1 host of 4 ranks, 2 of 2, and 4
of 1. This file is each rank, too.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from p4reduce_lab.models import Transformer
from p4reduce_lab.processes import Children
from p4reduce_lab.system import running_system
from p4reduce_runtime import logs

RANKS = 4
SYMBOLS, CONTEXT, BATCH = 65, 64, 8
LIMIT_S = 3_000.0


def train(steps: int, rank: int, store: str) -> None:
    """Be one rank: train, and print the digest of the weights."""
    logs.configure()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("p4reduce", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    model = DistributedDataParallel(Transformer(SYMBOLS, layers=4, width=128, heads=4, context=CONTEXT))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        signs = torch.randint(SYMBOLS, (BATCH, CONTEXT + 1), generator=data)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(signs[:, :-1]), signs[:, 1:].flatten()).backward()
        optimizer.step()
    weights = hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in model.parameters()))
    print(f"weights {weights.hexdigest()}", flush=True)
    dist.destroy_process_group()


def weights_of(children: Children, controller: str, ranks_per_host: int, steps: int) -> str:
    """Return the digest that all ranks print."""
    store = children.logs / f"store-{ranks_per_host}"
    ranks = []
    for rank in range(RANKS):
        environment = {
            "P4REDUCE_CONTROLLER": controller,
            "P4REDUCE_HOSTS": "on",
            "P4REDUCE_HOSTID": f"host {rank // ranks_per_host}",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        command = [sys.executable, __file__, "--steps", str(steps), "--rank", str(rank), "--store", str(store)]
        ranks.append(children.start(f"rank {rank} of {ranks_per_host} a host", command, environment))
    found = set()
    for child in ranks:
        child.wait(LIMIT_S)
        text = child.log.read_text()
        digest = re.search("^weights ([0-9a-f]{64})$", text, re.MULTILINE)
        if digest is None:
            raise child.failure("printed no digest")
        hosts = re.search(r"hosts found .*\bhosts=(\d+)", text)
        if (1 if hosts is None else RANKS // int(hosts[1])) != ranks_per_host:
            raise child.failure(f"did not find {ranks_per_host} ranks on its host")
        found.add(digest[1])
        children.forget(child)
    if len(found) > 1:
        raise ranks[0].failure("has other weights than another rank")
    return found.pop()


def main(arguments: Any = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rank", type=int, help="be this rank")
    parser.add_argument("--store", help="the file of the ranks' store")
    options = parser.parse_args(arguments)
    if options.rank is not None:
        train(options.steps, options.rank, options.store)
        return 0
    found: dict[int, str] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Children(Path(folder)) as children,
        running_system(children) as system,
    ):
        for ranks_per_host in (4, 2, 1):
            found[ranks_per_host] = weights_of(children, system.controller, ranks_per_host, options.steps)
            print(f"{RANKS // ranks_per_host} hosts of {ranks_per_host}: {found[ranks_per_host]}", flush=True)
    return len(set(found.values())) > 1


if __name__ == "__main__":
    sys.exit(main())
