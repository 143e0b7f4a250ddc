"""Train with few sums: every rank by itself for some steps, then one sum of what the weights have changed (DiLoCo).

    P4REDUCE_CONTROLLER=HOST:PORT torchrun --nproc-per-node 4 examples/diloco.py
    P4REDUCE_CONTROLLER=HOST:PORT torchrun --nproc-per-node 4 examples/diloco.py --adacomp
    P4REDUCE_CONTROLLER=HOST:PORT torchrun --nproc-per-node 4 examples/diloco.py --method ddp

After Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023 (arXiv 2311.08105;
unverified): AdamW within a rank, SGD with Nesterov momentum on the mean change of the weights. --adacomp compresses
that change; what it does not send is part of a later one. The data are scikit-learn's 1797 digits of 8 x 8 pixels.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from train import digits

import p4reduce
from p4reduce.compressors.all_reduce import all_reduce_compressed

settings = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
settings.add_argument("--method", choices=["diloco", "ddp"], default="diloco")
settings.add_argument("--adacomp", action="store_true", help="compress what is summed")
settings.add_argument("--steps", type=int, default=600)
settings.add_argument("--every", type=int, default=20, help="steps of a rank by itself between two sums")
settings.add_argument("--batch", type=int, default=16, help="images a worker and step")
settings.add_argument("--lr", type=float, default=0.002, help="of AdamW")
settings.add_argument("--outer-lr", type=float, default=0.7)
settings.add_argument("--outer-momentum", type=float, default=0.9)
settings.add_argument("--seed", type=int, default=0)


class Outer:
    """The step of all ranks together: `start - weights`, averaged, is the gradient of `start`."""

    def __init__(self, model, comm, compressor, lr, momentum):
        self.model, self.comm, self.compressor = model, comm, compressor
        self.start = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        self.optimizer = torch.optim.SGD(self.start.values(), lr=lr, momentum=momentum, nesterov=True)
        if compressor is not None:
            compressor.bind(model)

    @torch.no_grad()
    def step(self):
        """Bring all ranks to the same weights."""
        changes = {name: self.start[name] - weight for name, weight in self.model.named_parameters()}
        if self.compressor is None:
            for change in changes.values():
                dist.all_reduce(change, op=dist.ReduceOp.AVG)
        else:
            changes = all_reduce_compressed(self.comm, self.compressor, changes)[0].means
        for name, weight in self.start.items():
            weight.grad = changes[name]
        self.optimizer.step()
        for name, weight in self.model.named_parameters():
            weight.copy_(self.start[name])


def main(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    (x, y), (x_test, y_test) = digits()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = x[rank::ranks], y[rank::ranks]
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )
    comm = dist.group.WORLD.join()
    compressor = p4reduce.AdaComp() if args.adacomp else None
    trained, outer, hook = model, None, None
    if args.method == "ddp":
        trained = DistributedDataParallel(model)
        hook = p4reduce.DDPState(dist.group.WORLD, compressor, module=trained)
        trained.register_comm_hook(hook, p4reduce.ddp_hook)
    else:
        outer = Outer(model, comm, compressor, args.outer_lr, args.outer_momentum)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    draw = torch.Generator().manual_seed(1000 * args.seed + rank)
    before = comm.stats.copy()
    for step in range(1, args.steps + 1):
        batch = torch.randint(len(y), (args.batch,), generator=draw)
        optimizer.zero_grad()
        F.cross_entropy(trained(x[batch]), y[batch]).backward()
        optimizer.step()
        if outer is not None and (step % args.every == 0 or step == args.steps):
            outer.step()
    spent = comm.stats - before
    with torch.no_grad():
        logits = model(x_test)
        loss, hits = F.cross_entropy(logits, y_test).item(), (logits.argmax(1) == y_test).float().mean().item()
    weights = torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])
    same = torch.stack([weights, -weights])
    dist.all_reduce(same, op=dist.ReduceOp.MAX)
    assert torch.equal(same[0], -same[1]), "the ranks have different weights"
    if rank == 0:
        print(
            f"test loss {loss:.4f} accuracy {100 * hits:.2f} % "
            f"bytes up {spent.bytes_up} down {spent.bytes_down} in {args.steps} steps",
            flush=True,
        )
    if hook is not None:
        hook.close()


if __name__ == "__main__":
    arguments = settings.parse_args()
    dist.init_process_group("p4reduce")
    main(arguments)
    dist.destroy_process_group()
