"""The model of a task of the study."""

from __future__ import annotations

from torch import nn

from p4reduce_lab.models import LSTM, Transformer, mnist_cnn, mnist_mlp, perceptron
from p4reduce_lab.study.grid import Task


def make(task: Task, symbols: int = 0) -> nn.Module:
    """Make a task's model with new weights; `symbols`: characters that a language model knows."""
    if task.model == "mnist-mlp":
        return mnist_mlp()
    if task.model == "mnist-hdc":  # INCEPTIONN's net for handwritten digits (unverified)
        return perceptron(784, 500, 500, 500, 500, 10)
    if task.model == "mnist-cnn":
        return mnist_cnn()
    if task.model == "shakespeare-transformer":
        return Transformer(symbols, layers=task.layers, width=task.width, heads=task.heads, context=task.context)
    return LSTM(symbols)
