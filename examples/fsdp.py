"""Train a transformer with FSDP2, whose gradients a compressor may send.

    P4REDUCE_CONTROLLER=HOST:PORT torchrun --nproc-per-node 2 examples/fsdp.py
    P4REDUCE_CONTROLLER=HOST:PORT torchrun --nproc-per-node 2 examples/fsdp.py --compressor quantize
    P4REDUCE_COMPRESSOR=quantize P4REDUCE_CONTROLLER=HOST:PORT torchrun --nproc-per-node 2 examples/fsdp.py

Prints the loss over the last tenth of the steps and, on held-out text, at the end. The text is the source of Python's
standard library, as bytes.
"""

import argparse
import math
import sysconfig
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F

from p4reduce.pytorch.backend.options import Options

settings = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
settings.add_argument("--compressor", help='"quantize", "adacomp:linear=50,momentum=0.9", ... [default: none]')
settings.add_argument("--steps", type=int, default=400)
settings.add_argument("--layers", type=int, default=4)
settings.add_argument("--width", type=int, default=128)
settings.add_argument("--batch", type=int, default=16, help="pieces of 64 bytes, of all ranks together")
settings.add_argument("--lr", type=float, default=0.004, help="of AdamW, after 40 steps; a cosine brings it to 0")
settings.add_argument("--beta1", type=float, default=0.9, help="of AdamW: 0 with a compressor's momentum")
settings.add_argument("--bfloat16", action="store_true", help="gather the parameters in 16 bits")
settings.add_argument("--seed", type=int, default=0)
CONTEXT, HELD_OUT = 64, 1 << 16


class Transformer(nn.Module):
    """A decoder-only transformer over bytes: int64 [n, time] -> logits [n, time, 256]."""

    def __init__(self, layers, width):
        super().__init__()
        self.embedding, self.position = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        for embedding in (self.embedding, self.position):
            nn.init.normal_(embedding.weight, std=0.1)
        block = {"batch_first": True, "norm_first": True, "dropout": 0.0, "activation": "gelu"}
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, width // 32, 4 * width, **block) for _ in range(layers)
        )
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, signs):
        states = self.embedding(signs) + self.position.weight
        for block in self.blocks:
            states = block(states, src_mask=self.mask.to(states.dtype), is_causal=True)
        return self.output(self.norm(states))


def read_text():
    """Return the library's source, uint8 [bytes]."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8)


def loss_of(model, text, starts):
    pieces = torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()]).long()
    return F.cross_entropy(model(pieces[:, :-1]).float().flatten(0, 1), pieces[:, 1:].flatten())


def main(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    text = read_text()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = Transformer(args.layers, args.width)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if args.bfloat16 else MixedPrecisionPolicy()
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(args.beta1, 0.99), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 40, 1) * 0.5 * (1 + math.cos(math.pi * step / args.steps))
    )
    draw = torch.Generator().manual_seed(args.seed)
    comm = dist.group.WORLD.join()
    before, losses = comm.stats.copy(), []
    for _ in range(args.steps):
        starts = torch.randint(len(text) - HELD_OUT - CONTEXT, (args.batch,), generator=draw)[rank::ranks]
        optimizer.zero_grad()
        loss = loss_of(model, text, starts)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    spent = comm.stats - before
    with torch.no_grad():
        starts = torch.arange(len(text) - HELD_OUT, len(text) - CONTEXT - 1, CONTEXT).split(64)
        held_out = sum(loss_of(model, text, few).item() * len(few) for few in starts) / sum(map(len, starts))
    last = torch.tensor(losses[-max(1, args.steps // 10) :]).mean()
    dist.all_reduce(last, op=dist.ReduceOp.AVG)
    if rank == 0:
        print(
            f"{parameters} parameters, {args.steps} steps: loss {last:.4f}, held out {held_out:.4f}, "
            f"bytes of gradients up {spent.bytes_up} down {spent.bytes_down}",
            flush=True,
        )


if __name__ == "__main__":
    arguments = settings.parse_args()
    dist.init_process_group("p4reduce", pg_options=Options(compressor=arguments.compressor))
    main(arguments)
    dist.destroy_process_group()
