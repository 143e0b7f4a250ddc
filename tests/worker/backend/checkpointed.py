"""A rank that trains by DDP with residues over the backend's group, saves its state or loads what others saved.

torchrun --nproc-per-node N checkpointed.py FOLDER adacomp|quantize save|resume|sum
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


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
        optimizer.zero_grad()
        model(torch.randn(8, 20, generator=generator)).square().mean().backward()
        dist.all_reduce(torch.ones(3), async_op=True)  # may still run when the next pass begins
        optimizer.step()


def totals_of(state: p4reduce.DDPState) -> dict[str, torch.Tensor]:
    """Return over all ranks the sums of the residues, and the means of the velocities."""
    saved = state.state_dict()
    kept = saved["compressor"] or saved
    velocities = {
        f"velocity of {name}": one / dist.get_world_size() for name, one in kept.get("velocities", {}).items()
    }
    totals = {name: one.double() for name, one in (kept["residues"] | velocities).items()}
    for total in totals.values():
        dist.all_reduce(total)
    return totals


def main() -> None:
    folder, kind, task = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    dist.init_process_group("p4reduce")
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)), bucket_cap_mb=0.002)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compressor = {"adacomp": p4reduce.AdaComp(form="gather", momentum=0.9), "quantize": p4reduce.Quantize(8)}[kind]
    with p4reduce.DDPState(dist.group.WORLD, compressor, module=model) as state:
        model.register_comm_hook(state, p4reduce.ddp_hook)
        if task == "save":
            train(model, optimizer, range(STEPS))
            dcp.save(
                {"model": model.module.state_dict(), "hook": checkpoint.part(state)},
                checkpoint_id=folder / "checkpoint",
            )
            gathered = checkpoint.gather(state)
            totals = totals_of(state)
            assert any(total.abs().sum() > 0 for total in totals.values())
            assert len(totals) == {"adacomp": 2 + 4, "quantize": 4}[kind]
            if dist.get_rank() == 0:
                torch.save(gathered, folder / "gathered.pt")
                torch.save(totals, folder / "totals.pt")
            train(model, optimizer, range(STEPS, 2 * STEPS))
            if dist.get_rank() == 0:
                torch.save(model.module.state_dict(), folder / "uninterrupted.pt")
        else:
            saved = {"model": model.module.state_dict()}
            dcp.load(saved, checkpoint_id=folder / "checkpoint")
            model.module.load_state_dict(saved["model"])
            checkpoint.load(state, folder / "checkpoint")
        if task == "resume":
            train(model, optimizer, range(STEPS, 2 * STEPS))
            wanted = torch.load(folder / "uninterrupted.pt")
            assert all(torch.equal(weight, wanted[name]) for name, weight in model.module.state_dict().items())
        if task == "sum":
            wanted = torch.load(folder / "totals.pt")
            for again in range(2):
                for name, total in totals_of(state).items():
                    torch.testing.assert_close(total, wanted[name], rtol=0, atol=1e-6 * float(wanted[name].abs().max()))
                if not again:
                    checkpoint.load_gathered(state, torch.load(folder / "gathered.pt"))  # takes the place of the first
            train(model, optimizer, range(1))
        dist.barrier()
    print("done", flush=True)


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
