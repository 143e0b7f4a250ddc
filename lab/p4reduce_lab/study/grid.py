"""What the study runs: models, numbers of workers, optimizers, seeds, and ways to compress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from p4reduce.compressors import (
    AdaComp,
    BlockAdaComp,
    BlockRandomK,
    BlockThreshold,
    BlockTopK,
    BlockTopKRatio,
    Compressor,
    NoCompression,
    Policy,
    ScaleCom,
    SharedAdaComp,
)

SEEDS = (0, 1, 2)
CHUNK = 128
"""ScaleCom's chunk, in every layer."""
WARMUP_STEPS = 50


@dataclass(frozen=True)
class Task:
    """A model and how it is trained; the batch is shared out among the workers."""

    model: str
    steps: int
    batch: int
    sgd_lr: float
    adam_lr: float
    measure: str  #: "accuracy" in % on the test images, or "loss" in nats a character on the test text
    block_threshold: float  #: for BlockThreshold: an L2 norm, tried out so that one block in 25 to 30 is sent


TASKS = {
    "mnist-mlp": Task("mnist-mlp", 1872, 128, 0.03, 0.001, "accuracy", 0.3),
    "mnist-cnn": Task("mnist-cnn", 1404, 128, 0.02, 0.001, "accuracy", 0.6),
    "shakespeare-lstm": Task("shakespeare-lstm", 10000, 16, 0.2, 0.002, "loss", 0.1),
    "mnist-mlp-4096": Task("mnist-mlp", 140, 4096, 0.3, 0.01, "accuracy", 0.3),
}
"""By name. Four and three passes over MNIST's 60,000 images; 10000 steps of 16 pieces of 32 characters; ten passes."""

NOVOGRAD_LR = {"mnist-mlp": 0.03, "mnist-mlp-4096": 0.1}
"""Like the other rates the best of three to five that were tried on seed 0."""

MOMENTUM = 0.9
CHARACTERS = 32


@dataclass(frozen=True)
class Way:
    """One compressor in one wire form."""

    name: str
    make: Callable[[Task], Compressor]


def _scalecom(task: Task) -> Compressor:
    policy = Policy(conv=CHUNK, linear=CHUNK, recurrent=CHUNK, embedding=CHUNK)
    return ScaleCom(policy, b=0.1, warmup_steps=WARMUP_STEPS)


WAYS = {
    way.name: way
    for way in (
        Way("dense", lambda task: NoCompression()),
        Way("adacomp-gather", lambda task: AdaComp(form="gather")),
        Way("adacomp-sum", lambda task: AdaComp(form="sum")),
        Way("adacomp-auto", lambda task: AdaComp()),
        Way("shared-adacomp", lambda task: SharedAdaComp()),
        Way("scalecom", _scalecom),
        Way("block-adacomp", lambda task: BlockAdaComp()),
        Way("block-top-k", lambda task: BlockTopK(ratio=0.02)),
        Way("block-random-k", lambda task: BlockRandomK(ratio=0.1)),
        Way("block-threshold", lambda task: BlockThreshold(threshold=task.block_threshold)),
        Way("block-top-k-ratio", lambda task: BlockTopKRatio(ratio=0.02)),
    )
}

FORM_WAYS = tuple(way for way in WAYS if not way.startswith("block"))
BLOCK_WAYS = tuple(way for way in WAYS if way.startswith("block"))
MAIN_WAYS = ("dense", "adacomp-auto", "scalecom")
"""The ones that are also run with 2 and 8 workers and with Adam."""
SINGLE_FORM_WAYS = ("adacomp-gather", "adacomp-sum")
"""With 2 and 8 workers only once, for their bytes beside those of adacomp-auto."""
OPTIMIZERS = ("sgd", "adam", "novograd")
LARGE_BATCH = ("mnist-mlp-4096",)


@dataclass(frozen=True)
class Run:
    """One training."""

    model: str  #: the name of a task
    workers: int
    optimizer: str  #: "sgd" (with momentum), "adam" or "novograd"
    way: str
    seed: int

    @property
    def id(self) -> str:
        return f"{self.model}-{self.workers}-{self.optimizer}-{self.way}-{self.seed}"


def runs() -> Iterator[Run]:
    """Yield all runs, the most telling first: so an interrupted study has tables already.

    Three seeds where they tell most; one for the blocks, for the forms beside `auto`, and mostly for the slow LSTM,
    which is trained without the blocks and without Adam.
    """
    images, text = ("mnist-mlp", "mnist-cnn"), ("shakespeare-lstm",)
    first, rest = SEEDS[:1], SEEDS[1:]
    parts = (
        (text, (4,), "sgd", ("dense", "adacomp-gather", "adacomp-auto", "adacomp-sum"), SEEDS),
        (images, (4,), "sgd", FORM_WAYS, SEEDS),
        (images, (4,), "sgd", BLOCK_WAYS, first),
        (text, (4,), "sgd", FORM_WAYS, first),
        (images, (2, 8), "sgd", MAIN_WAYS + SINGLE_FORM_WAYS, first),
        (images, (4,), "adam", MAIN_WAYS, first),
        (images, (2, 8), "sgd", MAIN_WAYS, rest),
        (images, (4,), "adam", MAIN_WAYS, rest),
        (text, (2, 8), "sgd", ("dense", "adacomp-auto"), first),
        *((LARGE_BATCH, (4,), optimizer, ("dense", "adacomp-auto"), SEEDS) for optimizer in OPTIMIZERS),
        (images[:1], (4,), "novograd", ("dense", "adacomp-auto"), SEEDS),
    )
    yield from dict.fromkeys(
        Run(model, count, optimizer, way, seed)
        for models, workers, optimizer, ways, seeds in parts
        for seed in seeds
        for model in models
        for count in workers
        for way in ways
    )
