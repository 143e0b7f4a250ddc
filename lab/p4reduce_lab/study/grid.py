"""What the study runs: models, numbers of workers, optimizers, seeds, and variants to compress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from p4reduce.compressors import (
    AdaComp,
    Compressor,
    NoCompression,
    OmniReduce,
    Policy,
    ScaleCom,
)
from p4reduce_lab.study.baselines import BlockAdaComp, OneBit, TopK
from p4reduce_lab.study.ring import RINGS
from p4reduce_lab.study.rounded import ROUNDED

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
    block_threshold: float  #: for block-threshold: an L2 norm, tried out so that one block in 25 to 30 is sent


@dataclass(frozen=True)
class LanguageTask(Task):
    """A transformer of characters: AdamW (or SGD), linear warm-up and cosine decay, a limit on the gradient's norm."""

    context: int  #: characters
    layers: int
    width: int
    heads: int
    warmup: int  #: steps in which the learning rate rises
    clip: float  #: the gradient's largest L2 norm
    beta2: float
    weight_decay: float  #: of matrices


TRANSFORMER = "shakespeare-transformer"

TASKS = {
    TRANSFORMER: LanguageTask(
        TRANSFORMER,
        400,
        16,
        0.3,
        0.004,
        "loss",
        0.1,
        context=64,
        layers=4,
        width=128,
        heads=4,
        warmup=40,
        clip=1.0,
        beta2=0.99,
        weight_decay=0.1,
    ),
    "mnist-mlp": Task("mnist-mlp", 1872, 128, 0.03, 0.001, "accuracy", 0.3),
    "mnist-cnn": Task("mnist-cnn", 1404, 128, 0.02, 0.001, "accuracy", 0.6),
    "shakespeare-lstm": Task("shakespeare-lstm", 10000, 16, 0.2, 0.002, "loss", 0.1),
    "mnist-hdc-1": Task("mnist-hdc", 600, 100, 0.05, 0.001, "accuracy", 0.3),
    "mnist-hdc-2": Task("mnist-hdc", 1200, 100, 0.05, 0.001, "accuracy", 0.3),
    "plays-words-16": Task("plays-words", 4, 16, 0.2, 0.002, "loss", 0.1),
    "plays-words-64": Task("plays-words", 4, 64, 0.2, 0.002, "loss", 0.1),
    "mnist-mlp-4096": Task("mnist-mlp", 140, 4096, 0.3, 0.01, "accuracy", 0.3),
    "mnist-mlp-512x468": Task("mnist-mlp", 468, 512, 0.12, 0.001, "accuracy", 0.3),
    "mnist-mlp-2048x117": Task("mnist-mlp", 117, 2048, 0.25, 0.001, "accuracy", 0.3),
    "mnist-mlp-128x468": Task("mnist-mlp", 468, 128, 0.03, 0.001, "accuracy", 0.3),
    "mnist-mlp-128x117": Task("mnist-mlp", 117, 128, 0.06, 0.001, "accuracy", 0.3),
    "shakespeare-lstm-3000": Task("shakespeare-lstm", 3000, 16, 0.2, 0.002, "loss", 0.1),
    "shakespeare-lstm-20000": Task("shakespeare-lstm", 20000, 16, 0.2, 0.002, "loss", 0.1),
}
"""By name. First the transformer, 400 steps of 16 pieces of 64 characters. Four and three passes over MNIST's 60,000
images; 10000 steps of 16 pieces of 32 characters; ten passes.
Then four passes at larger batches, as few steps at the usual one, and a shorter and a longer training of the LSTM."""

NOVOGRAD_LR = {"mnist-mlp": 0.03, "mnist-mlp-4096": 0.1}
"""Like the other rates the best of three to five that were tried on seed 0."""

MOMENTUM = 0.9
CHARACTERS = 32


@dataclass(frozen=True)
class Variant:
    """One compressor in one wire form."""

    name: str
    make: Callable[[Task], Compressor]


def _scalecom(task: Task) -> Compressor:
    policy = Policy(conv=CHUNK, linear=CHUNK, recurrent=CHUNK, embedding=CHUNK)
    return ScaleCom(policy, b=0.1, warmup_steps=WARMUP_STEPS)


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("dense", lambda task: NoCompression()),
        Variant("adacomp-gather", lambda task: AdaComp(form="gather")),
        Variant("adacomp-sum", lambda task: AdaComp(form="sum")),
        Variant("adacomp-auto", lambda task: AdaComp()),
        Variant("shared-adacomp", lambda task: AdaComp(form="shared")),
        Variant("scalecom", _scalecom),
        Variant("block-adacomp", lambda task: BlockAdaComp()),
        Variant("block-top-k", lambda task: OmniReduce(ratio=0.02)),
        Variant("block-random-k", lambda task: OmniReduce("random-k", ratio=0.1)),
        Variant("block-threshold", lambda task: OmniReduce("threshold", threshold=task.block_threshold)),
        Variant("block-top-k-ratio", lambda task: OmniReduce("top-k-ratio", ratio=0.02)),
    )
}

FORM_VARIANTS = tuple(variant for variant in VARIANTS if not variant.startswith("block"))
BLOCK_VARIANTS = tuple(variant for variant in VARIANTS if variant.startswith("block"))


def _adacomp(length: int) -> Compressor:
    return AdaComp(Policy(linear=length, recurrent=length, embedding=length), form="gather")


OTHER_VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("one-bit", lambda task: OneBit(warmup_steps=WARMUP_STEPS)),
        Variant("one-bit-no-feedback", lambda task: OneBit(feedback=False, warmup_steps=WARMUP_STEPS)),
        Variant("top-k", lambda task: TopK(ratio=0.01, feedback=True, warmup_steps=WARMUP_STEPS)),
        Variant("top-k-no-feedback", lambda task: TopK(ratio=0.01, feedback=False, warmup_steps=WARMUP_STEPS)),
        Variant("adacomp-bins-100", lambda task: _adacomp(100)),
        Variant("adacomp-bins-50", lambda task: _adacomp(50)),
    )
}
"""Beside the product's own: the baselines, which begin with dense steps too, and AdaComp with other bins."""
BASELINES = ("one-bit", "one-bit-no-feedback", "top-k", "top-k-no-feedback")
BINS = ("adacomp-bins-100", "adacomp-bins-50")
MAIN_VARIANTS = ("dense", "adacomp-auto", "scalecom")
"""The ones that are also run with 2 and 8 workers and with Adam."""
SINGLE_FORM_VARIANTS = ("adacomp-gather", "adacomp-sum")
"""With 2 and 8 workers only once, for their bytes beside those of adacomp-auto."""
RING_PASSES = ("mnist-hdc-1", "mnist-hdc-2")
"""INCEPTIONN's net, for one and two passes of 600 steps."""
LONGER_RINGS = ("ring-dense", "ring-published-10")
"""Also trained for two passes."""
PLAYS_WORDS = ("plays-words-16", "plays-words-64")
"""Of so many pieces of 32 words; as many steps as it takes to count zeros, all through the switch."""
TRANSFORMER_VARIANTS = (
    "dense",
    "adacomp-gather",
    "adacomp-sum",
    "adacomp-shared",
    "scalecom",
    "block-top-k",
    "block-adacomp",
    "wire-16",
    "wire-8-feedback",
    "gloo-dense",
    "gloo-fp16",
    "gloo-powersgd",
)
"""Of transformer.py, rounded.py and hooks.py."""
TRANSFORMER_TRIED = (
    "adacomp-warm",
    "adacomp-clip-ranks",
    "dense-clip-ranks",
    "dense-frozen",
    "adacomp-frozen",
    "dense-momentum",
    "adacomp-momentum",
    "adacomp-momentum-bins-50",
    "momentum-bins-50-clip-mean",
    "adacomp-momentum-warm",
    "adacomp-clip-ranks-beta1-0",
    "dense-beta1-0",
    "adacomp-beta1-0",
    "adacomp-bins-50-beta1-0",
    "dense-tensor",
    "adacomp-tensor",
    "adacomp-bins-50",
    "adacomp-bins-50-warm",
    "adacomp-bins-50-frozen",
    "adacomp-dense-ends",
    "adacomp-beta2-999",
    "adacomp-beta2-9",
    "adacomp-rate-4",
)
"""What may help AdaComp with AdamW, and its dense counterparts."""
OPTIMIZERS = ("sgd", "adam", "novograd")
LARGE_BATCH = ("mnist-mlp-4096",)
BATCHES = ("mnist-mlp-512x468", "mnist-mlp-2048x117", "mnist-mlp-128x468", "mnist-mlp-128x117")
MANY_WORKERS = "mnist-mlp-512x468"
LSTM_WITH_ADAM = "shakespeare-lstm-3000"
LONGER_LSTM = "shakespeare-lstm-20000"


@dataclass(frozen=True)
class Run:
    """One training."""

    model: str  #: the name of a task
    workers: int
    optimizer: str  #: "sgd" (with momentum), "adam", "novograd" or "adamw"
    variant: str
    seed: int

    @property
    def id(self) -> str:
        return f"{self.model}-{self.workers}-{self.optimizer}-{self.variant}-{self.seed}"


def runs() -> Iterator[Run]:
    """Yield all runs, the main comparisons first: an interrupted study has tables already.

    Three seeds for the main comparisons; one for the blocks, for the forms beside `auto`, and mostly for the slow LSTM,
    which is trained without the blocks.
    """
    images, text = ("mnist-mlp", "mnist-cnn"), ("shakespeare-lstm",)
    first, rest = SEEDS[:1], SEEDS[1:]
    parts = (
        (text, (4,), "sgd", ("dense", "adacomp-gather", "adacomp-auto", "adacomp-sum"), SEEDS),
        (images, (4,), "sgd", FORM_VARIANTS, SEEDS),
        (images, (4,), "sgd", BLOCK_VARIANTS, first),
        (text, (4,), "sgd", FORM_VARIANTS, first),
        (images, (2, 8), "sgd", MAIN_VARIANTS + SINGLE_FORM_VARIANTS, first),
        (images, (4,), "adam", MAIN_VARIANTS, first),
        (images, (2, 8), "sgd", MAIN_VARIANTS, rest),
        (images, (4,), "adam", MAIN_VARIANTS, rest),
        (text, (2, 8), "sgd", ("dense", "adacomp-auto"), first),
        (images[1:], (4,), "sgd", BASELINES, SEEDS),
        (images[1:] + text, (4,), "sgd", tuple(ROUNDED), SEEDS),
        (BATCHES, (4,), "sgd", MAIN_VARIANTS, SEEDS),
        (text, (4,), "sgd", BINS, SEEDS),
        ((MANY_WORKERS,), (16, 32), "sgd", MAIN_VARIANTS, SEEDS),
        ((LSTM_WITH_ADAM,), (4,), "adam", MAIN_VARIANTS, SEEDS),
        ((LONGER_LSTM,), (4,), "sgd", ("dense", "adacomp-gather"), SEEDS),
        (RING_PASSES[:1], (4,), "sgd", tuple(RINGS), SEEDS),
        (RING_PASSES[1:], (4,), "sgd", LONGER_RINGS, SEEDS),
        (PLAYS_WORDS, (4,), "sgd", ("dense",), SEEDS),
        ((TRANSFORMER,), (4,), "adamw", TRANSFORMER_VARIANTS, SEEDS),
        ((TRANSFORMER,), (4,), "adamw", TRANSFORMER_TRIED, SEEDS),
        ((TRANSFORMER,), (4,), "sgd", ("dense", "adacomp-gather"), SEEDS),
        *((LARGE_BATCH, (4,), optimizer, ("dense", "adacomp-auto"), SEEDS) for optimizer in OPTIMIZERS),
        (images[:1], (4,), "novograd", ("dense", "adacomp-auto"), SEEDS),
    )
    yield from dict.fromkeys(
        Run(model, count, optimizer, variant, seed)
        for models, workers, optimizer, variants, seeds in parts
        for seed in seeds
        for model in models
        for count in workers
        for variant in variants
    )
