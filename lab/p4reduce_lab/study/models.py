"""The study's models: small enough to train on one processor core."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

NAMES = ("mnist-mlp", "mnist-cnn", "shakespeare-lstm")
"""Those of the main tables; beside them there are mnist-hdc, which is INCEPTIONN's, WordLSTM and Transformer."""


def make(name: str, alphabet_size: int = 0) -> nn.Module:
    """Make the named model with torch's default initial weights; only shakespeare-lstm uses `alphabet_size`."""
    if name == "mnist-mlp":
        return mnist_mlp()
    if name == "mnist-cnn":
        return mnist_cnn()
    if name == "shakespeare-lstm":
        return ShakespeareLSTM(alphabet_size)
    if name == "mnist-hdc":
        return mnist_hdc()
    raise ValueError(f"no model is called {name!r}; there are {', '.join(NAMES)}, mnist-hdc")


def mnist_mlp() -> nn.Module:
    """Make linear layers 784-300-100-10: float32 [batch, 1, 28, 28] to logits [batch, 10]; 266,610 parameters."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 300),
        nn.ReLU(),
        nn.Linear(300, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )


def mnist_hdc() -> nn.Module:
    """Make linear layers 784-500-500-500-500-10: float32 [batch, 1, 28, 28] to logits [batch, 10].

    INCEPTIONN's net for handwritten digits (unverified); 1,149,010 parameters.
    """
    widths = (784, 500, 500, 500, 500)
    hidden = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(widths[-1], 10))


def mnist_cnn() -> nn.Module:
    """Make 2 convolutions, 2 linear layers: float32 [batch, 1, 28, 28] to logits [batch, 10]; 54,314 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(784, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


class WordLSTM(nn.Module):
    """One LSTM layer of 64 over word embeddings of 64: 33,280 + 129 x `vocabulary_size` parameters."""

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, 64)
        self.lstm = nn.LSTM(64, 64, batch_first=True)
        self.output = nn.Linear(64, vocabulary_size)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Map int64 [batch, time] to the next word's logits [batch * time, vocabulary]; the state starts at zero."""
        states, _ = self.lstm(self.embedding(words))
        logits: torch.Tensor = self.output(states).flatten(0, 1)
        return logits


class ShakespeareLSTM(nn.Module):
    """One LSTM layer of 128 over embeddings of 64: 99,328 + 193 x `alphabet_size` parameters."""

    def __init__(self, alphabet_size: int) -> None:
        if alphabet_size < 1:
            raise ValueError(f"shakespeare-lstm needs the alphabet's size, 1 or more, not {alphabet_size}")
        super().__init__()
        self.embedding = nn.Embedding(alphabet_size, 64)
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.output = nn.Linear(128, alphabet_size)

    def forward(self, signs: torch.Tensor) -> torch.Tensor:
        """Map int64 [batch, time] to the next sign's logits [batch * time, alphabet]; the state starts at zero."""
        states, _ = self.lstm(self.embedding(signs))
        logits: torch.Tensor = self.output(states).flatten(0, 1)
        return logits


class Transformer(nn.Module):
    """A decoder-only transformer: layers of pre-norm causal attention and a GELU layer of four times the width.

    12 x `layers` x `width`^2 parameters, besides embeddings, norms and the output layer.
    """

    def __init__(self, alphabet_size: int, *, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(alphabet_size, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, alphabet_size, bias=False)
        for embedding in (self.embedding, self.position):
            nn.init.normal_(embedding.weight, std=0.1)
        for name, layer in self.named_modules():
            if isinstance(layer, nn.Linear):
                last = name.endswith(("project", "down"))  # of a branch beside the residual connection
                nn.init.normal_(layer.weight, std=(layer.in_features * (2 * layers if last else 1)) ** -0.5)

    def forward(self, signs: torch.Tensor) -> torch.Tensor:
        """Map int64 [batch, time], time at most `context`, to the next sign's logits [batch * time, alphabet]."""
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
