"""The study's models: small enough to train on one processor core."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

NAMES = ("mnist-mlp", "mnist-cnn", "shakespeare-lstm")
"""Those of the main tables; beside them there are mnist-hdc, which is INCEPTIONN's, and WordLSTM."""


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
