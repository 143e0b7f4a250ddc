"""Generate tokens with a small Llama-like model whose layers are split over the ranks (tensor parallelism).

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 examples/tensor_parallel.py
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 examples/tensor_parallel.py --backend gloo

A rank has some heads of every attention and some columns of every feed-forward layer. For each token two all_reduces a
layer sum what the ranks add to its state. Prints the tokens a second at batch 1 and a hash of the tokens, which is the
same for both backends. The weights are random.
"""

import argparse
import hashlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

settings = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
settings.add_argument("--backend", choices=["gloo", "p4reduce"], default="p4reduce")
settings.add_argument("--tokens", type=int, default=64)
LAYERS, WIDTH, HEAD, VOCABULARY = 4, 256, 32, 256
PLAN = {
    **dict.fromkeys(["query", "key", "value", "gate", "up"], ColwiseParallel()),
    **dict.fromkeys(["attended", "down"], RowwiseParallel()),
}


class Layer(nn.Module):
    """One layer: float32 [1, time, WIDTH] -> the same. After `parallelize_module` a rank has some of the heads."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.attended = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)
        self.norm, self.next_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)

    def forward(self, x, turns, cache):
        states = self.norm(x)
        query, key, value = (  # [1, heads of this rank, time, HEAD]
            part(states).unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        query, key = (torch.view_as_complex(part.unflatten(-1, (-1, 2))) * turns for part in (query, key))
        query, key = (torch.view_as_real(part).flatten(-2) for part in (query, key))
        cache[:] = [torch.cat(part, 2) for part in zip(cache, (key, value), strict=True)] if cache else [key, value]
        heads = F.scaled_dot_product_attention(query, *cache, is_causal=x.shape[1] > 1)
        x = x + self.attended(heads.transpose(1, 2).flatten(2))
        states = self.next_norm(x)
        return x + self.down(F.silu(self.gate(states)) * self.up(states))


class Llama(nn.Module):
    """Tokens int64 [1, time] from `position` on -> logits float32 [VOCABULARY] of the next; `caches`: one a layer."""

    def __init__(self):
        super().__init__()
        self.embedding, self.layers = nn.Embedding(VOCABULARY, WIDTH), nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.output = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, position, caches):
        places = torch.arange(position, position + tokens.shape[1])
        angles = torch.outer(places, 10_000 ** (-torch.arange(0, HEAD, 2) / HEAD))
        x = self.embedding(tokens)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, torch.polar(torch.ones_like(angles), angles), cache)
        return self.output(self.norm(x[0, -1]))


def split_model(mesh):
    """Return the model, of whose layers each rank of the mesh has a part."""
    torch.manual_seed(0)
    model = Llama()
    for layer in model.layers:
        parallelize_module(layer, mesh, PLAN)
    return model


@torch.no_grad()
def generate(model, count):
    """Return `count` tokens, each the likeliest one after those before it."""
    tokens, position, caches, found = torch.arange(16)[None], 0, [[] for _ in model.layers], []
    for _ in range(count):
        found.append(int(model(tokens, position, caches).argmax()))
        position += tokens.shape[1]
        tokens = torch.tensor([found[-1:]])
    return found


if __name__ == "__main__":
    args = settings.parse_args()
    dist.init_process_group(args.backend)
    torch.set_num_threads(1)
    model = split_model(init_device_mesh("cpu", (dist.get_world_size(),)))
    generate(model, 4)  # what is done once only
    began = time.perf_counter()
    tokens = generate(model, args.tokens)
    rate = args.tokens / (time.perf_counter() - began)
    if dist.get_rank() == 0:
        print(f"{rate:.1f} tokens/s, tokens {hashlib.sha256(bytes(tokens)).hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()
