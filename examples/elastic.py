"""Continue a training after a worker, the switch or the controller fails (docs/elastic.md).

    p4reduce job create elastic --world-size 2
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1   # or a launch reads gloo's addresses of the launch before it
    torchrun --standalone --nproc-per-node 2 --max-restarts 20 examples/elastic.py --job elastic --folder out/elastic

torchrun restarts all ranks when one has ended with an error; they continue from the newest step that all of them have
on disk. A second start with the same folder continues as well. With --rejoin the ranks survive a restart of the switch.
"""

import argparse
import hashlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from train import run

import p4reduce
from p4reduce.compressors import by_name

settings = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
settings.add_argument("--job", help="the switch's job [default: P4REDUCE_JOB]")
settings.add_argument("--folder", type=Path, required=True, help="for the checkpoints; of several hosts: a shared one")
settings.add_argument("--steps", type=int, default=1000)
settings.add_argument("--every", type=int, default=20, help="steps from one checkpoint to the next")
settings.add_argument("--compressor", type=by_name, default="adacomp")
settings.add_argument(
    "--join-timeout", type=float, default=120.0, help="seconds for switch and controller to come back"
)
settings.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for other workers, each time")
settings.add_argument("--rejoin", action="store_true", help="go on in the same processes when the switch comes back")


def batch(step):
    """Return this rank's inputs and labels: they follow from rank and step, so a step that is redone has the same."""
    generator = torch.Generator().manual_seed(1_000_000 * dist.get_rank() + step)
    x = torch.randn(16, 32, generator=generator)
    return x, x[:, :4].argmax(1)


def saved_steps(folder):
    """Return at which steps this rank has checkpoints, the newest last."""
    return sorted(int(path.stem.rpartition("-")[2]) for path in folder.glob(f"rank{dist.get_rank()}-*.pt"))


def save(folder, step, **parts):
    """Write this rank's checkpoint whole or not at all, and keep the one before: another rank may not have this one."""
    path = folder / f"rank{dist.get_rank()}-{step}.pt"
    torch.save({name: part.state_dict() for name, part in parts.items()}, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
    for old in saved_steps(folder)[:-2]:
        (folder / f"rank{dist.get_rank()}-{old}.pt").unlink()


def resume(folder, **parts):
    """Load the newest step that every rank has, and return it; 0 if there is none."""
    newest = torch.tensor((saved_steps(folder) or [0])[-1])
    dist.all_reduce(newest, dist.ReduceOp.MIN)
    step = int(newest)
    if step:
        saved = torch.load(folder / f"rank{dist.get_rank()}-{step}.pt", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(saved[name])  # the compressor's too: it holds what was not sent yet
    for later in saved_steps(folder):
        if later > step:  # of the step that another rank did not get to save
            (folder / f"rank{dist.get_rank()}-{later}.pt").unlink()
    return step


def main(args):
    """Train to the last step, from wherever the checkpoints are."""
    args.folder.mkdir(parents=True, exist_ok=True)
    rank, launch = dist.get_rank(), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    parts = {"net": net, "optimizer": torch.optim.SGD(net.parameters(), 0.05, 0.9), "compressor": args.compressor}
    first = resume(args.folder, **parts)
    model = DistributedDataParallel(net)
    with (
        p4reduce.join(
            args.job, timeout_s=args.join_timeout, collective_timeout_s=args.timeout, rejoin=args.rejoin
        ) as comm,
        p4reduce.DDPState(comm, args.compressor, module=model) as state,
        (args.folder / "begun").open("ab", 0) as begun,
    ):
        model.register_comm_hook(state, p4reduce.ddp_hook)
        print(f"rank {rank}: launch {launch} goes on after step {first}", flush=True)
        for step in range(first + 1, args.steps + 1):
            if rank == 0:
                begun.write(b".")  # a byte a step, for the count at the end
            x, y = batch(step)
            parts["optimizer"].zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # JobResetError or CollectiveTimeoutError ends the process: torchrun's turn
            parts["optimizer"].step()
            if step % args.every == 0 or step == args.steps:
                save(args.folder, step, **parts)
    weights = b"".join(tensor.numpy().tobytes() for tensor in net.state_dict().values())
    print(f"rank {rank}: {args.steps} steps, weights {hashlib.sha256(weights).hexdigest()}", flush=True)
    if rank == 0:
        redone = (args.folder / "begun").stat().st_size - args.steps
        print(f"{redone} steps were redone", flush=True)


if __name__ == "__main__":
    run(main, settings.parse_args())
