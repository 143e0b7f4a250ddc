"""A rank that trains by DDP with residues over the backend's groups: three ranks save, two and four load it.

torchrun --nproc-per-node 4 checkpointed.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel

import p4reduce
from p4reduce.pytorch import checkpoint

STEPS = 3


def train(model: nn.Module, steps: range, group: dist.ProcessGroup) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in steps:
        generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
        optimizer.zero_grad()
        model(torch.randn(8, 20, generator=generator)).square().mean().backward()
        dist.all_reduce(torch.ones(3), group=group, async_op=True)  # may still run when the next pass begins
        optimizer.step()


def totals_of(state: p4reduce.DDPState, group: dist.ProcessGroup) -> dict[str, torch.Tensor]:
    """Return over all ranks the sums of the residues, and the means of the velocities."""
    saved = state.state_dict()
    kept = saved["compressor"] or saved
    velocities = {f"velocity of {name}": one / group.size() for name, one in kept.get("velocities", {}).items()}
    totals = {name: one.double() for name, one in (kept["residues"] | velocities).items()}
    for total in totals.values():
        dist.all_reduce(total, group=group)
    return totals


def run(folder: Path, kind: str, task: str, group: dist.ProcessGroup) -> None:
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    model = DistributedDataParallel(net, bucket_cap_mb=0.002, process_group=group)
    compressor = {"adacomp": p4reduce.AdaComp(form="gather", momentum=0.9), "quantize": p4reduce.Quantize(8)}[kind]
    with p4reduce.DDPState(group, compressor, module=model) as state:
        model.register_comm_hook(state, p4reduce.ddp_hook)
        if task == "save":
            train(model, range(STEPS), group)
            dcp.save(
                {"model": net.state_dict(), "hook": checkpoint.part(state)},
                checkpoint_id=folder / "checkpoint",
                process_group=group,
            )
            gathered = checkpoint.gather(state, group)
            totals = totals_of(state, group)
            assert any(total.abs().sum() > 0 for total in totals.values())
            assert len(totals) == {"adacomp": 2 + 4, "quantize": 4}[kind]
            if dist.get_rank() == 0:
                torch.save(gathered, folder / "gathered.pt")
                torch.save(totals, folder / "totals.pt")
            train(model, range(STEPS, 2 * STEPS), group)
            if dist.get_rank() == 0:
                torch.save(net.state_dict(), folder / "uninterrupted.pt")
        else:
            saved = {"model": net.state_dict()}
            dcp.load(saved, checkpoint_id=folder / "checkpoint", process_group=group)
            net.load_state_dict(saved["model"])
            checkpoint.load(state, folder / "checkpoint", process_group=group)
        if task == "resume":
            train(model, range(STEPS, 2 * STEPS), group)
            wanted = torch.load(folder / "uninterrupted.pt")
            assert all(torch.equal(weight, wanted[name]) for name, weight in net.state_dict().items())
        if task == "sum":
            wanted = torch.load(folder / "totals.pt")
            for again in range(2):
                for name, total in totals_of(state, group).items():
                    torch.testing.assert_close(total, wanted[name], rtol=0, atol=1e-6 * float(wanted[name].abs().max()))
                if not again:
                    checkpoint.load_gathered(state, torch.load(folder / "gathered.pt"))  # takes the place of the first
            train(model, range(1), group)
        dist.barrier(group)


def main() -> None:
    dist.init_process_group("p4reduce")
    groups = {ranks: dist.new_group(range(ranks)) for ranks in (2, 3, 4)}
    for kind in ("adacomp", "quantize"):
        folder = Path(sys.argv[1]) / kind
        folder.mkdir(exist_ok=True)
        # DDP's first pass has other buckets, and so other blocks in which 8 bits are rounded
        same = "resume" if kind == "adacomp" else "sum"
        for ranks, task in ((3, "save"), (3, same), (2, "sum"), (4, "sum")):
            if dist.get_rank() < ranks:
                run(folder, kind, task, groups[ranks])
            dist.barrier()
    print("done", flush=True)


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
