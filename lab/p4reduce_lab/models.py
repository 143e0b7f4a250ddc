"""Models of the study and of papers/, small enough to train on one processor core."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F


def mnist_mlp() -> nn.Module:
    """Make linear layers 784-300-100-10: float32 [batch, 1, 28, 28] to logits [batch, 10]; 266,610 parameters."""
    return perceptron(784, 300, 100, 10)


def perceptron(*widths: int) -> nn.Module:
    """Make linear layers of these widths with ReLU between them; the input is flattened."""
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers[:-1])


def mnist_cnn() -> nn.Module:
    """Make 2 convolutions, 2 linear layers: float32 [batch, 1, 28, 28] to logits [batch, 10]; 54,314 parameters."""
    first = (nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


class LSTM(nn.Module):
    """One LSTM layer of 128 over embeddings of 64."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, 64)
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.output = nn.Linear(128, symbols)

    def forward(self, signs: torch.Tensor) -> torch.Tensor:
        """Map int64 [batch, time] to the next sign's logits [batch * time, symbols]; the state starts at zero."""
        states, _ = self.lstm(self.embedding(signs))
        logits: torch.Tensor = self.output(states).flatten(0, 1)
        return logits


class Transformer(nn.Module):
    """A decoder-only transformer: layers of pre-norm causal attention and a GELU layer of four times the width.

    12 x `layers` x `width`^2 parameters, besides embeddings, norms and the output layer.
    """

    def __init__(self, symbols: int, *, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, symbols, bias=False)
        for embedding in (self.embedding, self.position):
            nn.init.normal_(embedding.weight, std=0.1)
        for name, layer in self.named_modules():
            if isinstance(layer, nn.Linear):
                last = name.endswith(("project", "down"))  # of a branch beside the residual connection
                nn.init.normal_(layer.weight, std=(layer.in_features * (2 * layers if last else 1)) ** -0.5)

    def forward(self, signs: torch.Tensor) -> torch.Tensor:
        """Map int64 [batch, time], time at most `context`, to the next sign's logits [batch * time, symbols]."""
        hidden = self.embedding(signs) + self.position.weight[: signs.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        logits: torch.Tensor = self.output(self.norm(hidden)).flatten(0, 1)
        return logits


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, time, width = hidden.shape
        query, key, value = (
            self.attention(self.norm_1(hidden)).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.project(attended.transpose(1, 2).reshape(batch, time, width))
        out: torch.Tensor = hidden + self.down(F.gelu(self.up(self.norm_2(hidden))))
        return out
