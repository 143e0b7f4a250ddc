"""Train a small CNN on handwritten digits, summing gradients over gloo or the switch.

    # 1. without the switch: gloo's ring over TCP
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 examples/train.py

    # 2. through the switch (in two other terminals: `p4reduce switch run` and `p4reduce controller run`)
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 examples/train.py --aggregation p4reduce

    # 3. and compressed
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 examples/train.py --aggregation p4reduce --compressor adacomp

--compressor takes a name (docs/compressors.md lists them).
The data are scikit-learn's 1797 digits of 8 x 8 pixels, which come with the package: nothing is downloaded.
"""

import argparse
import gc
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import p4reduce
from p4reduce.compressors import by_name

TEST_IMAGES = 360


def compressor(text):
    """Return the compressor of this name, None for "none"."""
    try:
        return None if text == "none" else by_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


settings = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
settings.add_argument("--aggregation", choices=["gloo", "p4reduce"], default="gloo", help="what sums the gradients")
settings.add_argument("--compressor", type=compressor, metavar="NAME", help="with p4reduce [default: none]")
settings.add_argument(
    "--job",
    default=os.environ.get("P4REDUCE_JOB"),
    help="one that `p4reduce job create` made; the backend is gloo then [default: P4REDUCE_JOB]",
)
settings.add_argument("--seed", type=int, default=0, help="of the initial weights and the order of the data")
settings.add_argument("--epochs", type=int, default=30)
settings.add_argument("--log-every", type=int, default=10, help="steps from one line about the loss to the next")
settings.add_argument("--batch", type=int, default=16, help="images a worker and step")
settings.add_argument("--lr", type=float, default=0.2, help="at the start; a cosine brings it to 0")
settings.add_argument("--momentum", type=float, default=0.5, help="AdaComp's residues act as more of it")
settings.add_argument(
    "--timeout", type=float, default=30.0, help="with --job: seconds to wait for other ranks, each time"
)


class Net(nn.Module):
    """Two convolutions and two linear layers, 9802 parameters. float32 [n, 1, 8, 8] -> [n, 10] logits."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc1 = nn.Linear(16 * 4 * 4, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = F.max_pool2d(x, 2).flatten(1)
        return self.fc2(F.relu(self.fc1(x)))


def digits():
    """Return images float32 [n, 1, 8, 8] and labels int64 [n], first for training, then for testing."""
    from sklearn.datasets import load_digits  # here: other examples use `run` alone

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))  # one split for all seeds
    x = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8)[order] / 16
    y = torch.tensor(labels)[order]
    return (x[:-TEST_IMAGES], y[:-TEST_IMAGES]), (x[-TEST_IMAGES:], y[-TEST_IMAGES:])


def build(args):
    """Return the model and the state of its hook, None without one."""
    torch.manual_seed(args.seed)  # the same initial weights on all ranks
    model = DistributedDataParallel(Net())
    if args.aggregation == "gloo" or not (args.job or args.compressor):  # the process group sums by itself
        return model, None
    comm = dist.group.WORLD
    if args.job:
        comm = p4reduce.join(args.job, timeout_s=args.timeout, collective_timeout_s=args.timeout)
    state = p4reduce.DDPState(comm, args.compressor, module=model)
    model.register_comm_hook(state, p4reduce.ddp_hook)
    return model, state


def train(model, x, y, args):
    """Train on this rank's share of the data and return the loss of every step."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    steps_an_epoch = len(y) // world_size // args.batch
    steps = args.epochs * steps_an_epoch
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for epoch in range(args.epochs):
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1000 * args.seed + epoch))
        mine = order[rank::world_size]
        for batch in mine[: steps_an_epoch * args.batch].view(steps_an_epoch, args.batch):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch])
            loss.backward()  # the hook sums the gradients in here
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if rank == 0 and (len(losses) % args.log_every == 0 or len(losses) == steps):
                latest = losses[-args.log_every :]
                print(f"step {len(losses)}/{steps} loss {sum(latest) / len(latest):.4f}", flush=True)
    return losses


@torch.no_grad()
def accuracy(model, x, y):
    """Return the share of the images that the model classifies correctly."""
    return (model.module(x).argmax(1) == y).float().mean().item()


def main(args):
    training, test = digits()
    model, state = build(args)
    train(model, *training, args)
    if dist.get_rank() == 0:
        print(f"test accuracy {100 * accuracy(model, *test):.2f} %", flush=True)
    if state is not None:
        state.close()
        if args.job:
            state.comm.close()


def parse(arguments=None):
    """Return the settings of these arguments, or of the command line."""
    args = settings.parse_args(arguments)
    if args.compressor is not None and args.aggregation != "p4reduce":
        settings.error("--compressor needs --aggregation p4reduce")
    return args


def run(main, args, backend="gloo"):
    """Call main(args) in a process group."""
    dist.init_process_group(backend)
    torch.set_num_threads(1)
    main(args)
    # Gloo's threads must release the last collective's tensors before the interpreter ends, or torch aborts the
    # process: free the references to the process group, then synchronize.
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    args = parse()
    run(main, args, "gloo" if args.job else args.aggregation)
