"""LGC: an autoencoder, trained on the first gradients, that encodes the values at a leader's choice of elements.

After "Learned Gradient Compression for Distributed Deep Learning" (LGC). The paper's text was not at hand
(unverified): the networks below are as seen in public code, the rest as others describe it. Dense steps come
first, then steps with exact values on which the autoencoder is trained, then compressed ones. One rank a step, in
turn, chooses its largest elements; every rank has a residue, and k values there.

ring      Every rank encodes its values; the mean of all codes is decoded. Codes can be summed, so a switch would do.
server    The leader alone sends a code, and each rank its largest values beside it; each rank's are decoded.

Beside it the same values as they are, in 8 bits, and as signs. Everything up to the compressed steps is shared by
all variants of a seed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from p4reduce_lab.datasets import Images, accuracy, batches
from p4reduce_lab.models import mnist_mlp


@dataclass(frozen=True)
class Settings:
    """The settings of every training; the paper has 200 dense steps, 300 of the autoencoder, 0.1 % of the elements."""

    ranks: int = 4
    batch: int = 128  #: images of all ranks
    dense_steps: int = 100
    autoencoder_steps: int = 200
    compressed_steps: int = 200
    share: float = 0.002  #: share of all elements that a leader chooses
    lr: float = 0.03
    momentum: float = 0.9
    autoencoder_lr: float = 0.001

    @property
    def steps(self) -> int:
        return self.dense_steps + self.autoencoder_steps + self.compressed_steps


INNOVATION = 0.1
"""Share of a rank's chosen values that it sends unencoded, in the server variant."""
SHRINKAGE = 16
"""Values to one place of a code; a code has 4 channels, so a quarter as many floats as there are values."""
CODE_CHANNELS = 4


class Autoencoder(nn.Module):
    """From values [n, k] to codes [n, 4, k / 16] and back; k is a multiple of 16. The decoder also takes what a rank
    sends as it is, zeros elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        down, up = (1, 64, 128, 256, 64), (CODE_CHANNELS, 32, 64, 128, 32)
        encoder: list[nn.Module] = []
        decoder: list[nn.Module] = []
        for i in range(4):
            encoder += [nn.Conv1d(down[i], down[i + 1], 3, stride=2, padding=1), nn.LeakyReLU()]
            decoder += [nn.ConvTranspose1d(up[i], up[i + 1], 4, stride=2, padding=1), nn.LeakyReLU()]
        self.encoder = nn.Sequential(*encoder, nn.Conv1d(down[-1], CODE_CHANNELS, 1))
        self.decoder = nn.Sequential(*decoder)
        self.last = nn.Conv1d(up[-1] + 1, 1, 1)

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        codes: torch.Tensor = self.encoder(values[:, None])
        return codes

    def decode(self, codes: torch.Tensor, innovation: torch.Tensor) -> torch.Tensor:
        """Return values [n, k] from codes and what is known of them, [n, k]."""
        values: torch.Tensor = self.last(torch.cat([self.decoder(codes), innovation[:, None]], 1))
        return values[:, 0]


class Sent(NamedTuple):
    """The results of sending all ranks' values [ranks, k] at the leader's choice."""

    mean: torch.Tensor  #: [k], the mean that all ranks get
    own: torch.Tensor  #: [ranks, k], the values that each takes from its residue


Batch = list[tuple[torch.Tensor, torch.Tensor]]
"""Images and labels of each rank."""
Send = Callable[[torch.Tensor, int, Autoencoder], Sent]
"""Takes values [ranks, k], the leader and its autoencoder."""


def plain(encode: Callable[[torch.Tensor], torch.Tensor]) -> Send:
    """Send each rank's values as `encode` changes them."""
    return lambda values, leader, coder: Sent((sent := encode(values)).mean(0), sent)


def signs(values: torch.Tensor) -> torch.Tensor:
    """Return signs, times a mean magnitude for each rank."""
    return values.sign() * values.abs().mean(1, keepdim=True)


def ring(*, kept: bool, eight_bits: bool = False) -> Send:
    """Average the codes. `kept`: the residue keeps what a rank's own decoded values lack; else it is cleared."""

    def send(values: torch.Tensor, leader: int, coder: Autoencoder) -> Sent:
        scale, nothing = unit_rms(values), torch.zeros_like(values)
        codes = coder.encode(values / scale)
        codes = in_eight_bits(codes) if eight_bits else codes
        mean = coder.decode(codes.mean(0, keepdim=True), nothing[:1])[0] * scale
        return Sent(mean, coder.decode(codes, nothing) * scale if kept else values)

    return send


def server(*, kept: bool) -> Send:
    """Decode each rank's values from the leader's code and its own largest ones."""

    def send(values: torch.Tensor, leader: int, coder: Autoencoder) -> Sent:
        scale = unit_rms(values)
        code = coder.encode(values[leader : leader + 1] / scale).expand(len(values), -1, -1)
        decoded = coder.decode(code, innovation_of(values) / scale) * scale
        return Sent(decoded.mean(0), decoded if kept else values)

    return send


def in_eight_bits(values: torch.Tensor) -> torch.Tensor:
    unit = values.abs().max().clamp(min=1e-30) / 127
    return (values / unit).round() * unit


def unit_rms(values: torch.Tensor) -> torch.Tensor:
    """Return the scale by which all ranks' values have a mean square of 1: the autoencoder needs it."""
    return values.square().mean().sqrt().clamp(min=1e-30)


def innovation_of(values: torch.Tensor) -> torch.Tensor:
    """Return each rank's largest values, the share INNOVATION of all, at their places, zeros elsewhere: [ranks, k]."""
    places = values.abs().topk(max(1, round(INNOVATION * values.shape[1])), dim=1).indices
    return torch.zeros_like(values).scatter(1, places, values.gather(1, places))


VARIANTS: dict[str, tuple[Send, str]] = {
    "exact values": (plain(lambda values: values), "32"),
    "8 bits": (plain(in_eight_bits), "8"),
    "signs": (plain(signs), "1"),
    "LGC ring, residue cleared": (ring(kept=False), "8"),
    "LGC ring, residue kept": (ring(kept=True), "8"),
    "LGC ring, kept, codes in 8 bits": (ring(kept=True, eight_bits=True), "2"),
    "LGC server, residue cleared": (server(kept=False), "8 of the leader, 3.2 and places of each rank"),
    "LGC server, residue kept": (server(kept=True), "8 of the leader, 3.2 and places of each rank"),
}
"""Variant -> the form of the chosen values, and the bits a value and rank, without scales and the leader's choice.

A code of k / 4 floats is 8 bits a value, of k / 4 bytes 2."""
DENSE = "dense"


class Training:
    """A model that four ranks train, and their residues. A copy is trained independently."""

    def __init__(self, seed: int, settings: Settings) -> None:
        torch.manual_seed(seed)
        self.settings = settings
        self.model = mnist_mlp()
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.velocity = torch.zeros(parameters)
        self.residues = torch.zeros(settings.ranks, parameters)
        self.chosen = max(1, int(settings.share * parameters) // SHRINKAGE) * SHRINKAGE
        self.steps = 0
        self.diverged = False

    def gradients(self, parts: Batch) -> torch.Tensor:
        """Return every rank's gradient of its part of the images, [ranks, parameters]."""
        found = []
        for part, labels in parts:
            loss = F.cross_entropy(self.model(part), labels)
            self.diverged |= not math.isfinite(loss.item())
            found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(self.model.parameters()))]))
        return torch.stack(found)

    def update(self, mean: torch.Tensor) -> None:
        """Make a step of SGD with momentum with the mean gradient, [parameters]; its rate falls to 0 along a cosine."""
        self.velocity = self.settings.momentum * self.velocity + mean
        rate = self.settings.lr * (1 + math.cos(math.pi * self.steps / self.settings.steps)) / 2
        weights = parameters_to_vector(self.model.parameters()).detach()
        vector_to_parameters(weights - rate * self.velocity, self.model.parameters())
        self.steps += 1

    def sparse_step(self, parts: Batch, send: Send, coder: Autoencoder) -> tuple[torch.Tensor, float]:
        """Make a compressed step. Return the ranks' values at the leader's choice, and the mean's relative error."""
        totals = self.residues + self.gradients(parts)
        leader = self.steps % self.settings.ranks
        places = totals[leader].abs().topk(self.chosen).indices
        values = totals[:, places]
        with torch.no_grad():
            sent = send(values, leader, coder)
        self.residues = totals
        self.residues[:, places] -= sent.own
        mean = torch.zeros(totals.shape[1])
        mean[places] = sent.mean
        self.update(mean)
        wanted = values.mean(0)
        return values, float((sent.mean - wanted).norm() / wanted.norm().clamp(min=1e-30))


def train_autoencoder(
    coder: Autoencoder, optimizer: torch.optim.Optimizer, values: torch.Tensor, leader: int, variant: str
) -> float:
    """Make a step of the autoencoder on the ranks' values; return its loss, of values of mean square 1."""
    values = values / unit_rms(values)
    if variant == "server":
        code = coder.encode(values[leader : leader + 1]).expand(len(values), -1, -1)
        loss = F.mse_loss(coder.decode(code, innovation_of(values)), values)
    else:
        codes, nothing = coder.encode(values), torch.zeros_like(values)
        decoded = coder.decode(torch.cat([codes, codes.mean(0, keepdim=True)]), torch.cat([nothing, nothing[:1]]))
        loss = F.mse_loss(decoded[:-1], values) + F.mse_loss(decoded[-1], values.mean(0))
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


def run(seed: int, images: Images, settings: Settings | None = None) -> Iterator[dict[str, Any]]:
    """Yield a record for each variant, the dense one first."""
    settings = settings or Settings()
    generator = torch.Generator().manual_seed(1000 + seed)
    given = list(islice(batches(images, settings.batch, settings.ranks, generator), settings.steps))
    dense = Training(seed, settings)
    for step, parts in enumerate(given):
        if step == settings.dense_steps:
            start = copy.deepcopy(dense)
        dense.update(dense.gradients(parts).mean(0))
    yield _record(DENSE, seed, dense, images, [])

    coders = {"ring": Autoencoder(), "server": Autoencoder()}
    optimizers = {name: torch.optim.Adam(coder.parameters(), settings.autoencoder_lr) for name, coder in coders.items()}
    first = settings.dense_steps + settings.autoencoder_steps
    for parts in given[settings.dense_steps : first]:
        leader = start.steps % settings.ranks
        values, _ = start.sparse_step(parts, VARIANTS["exact values"][0], coders["ring"])
        for name, coder in coders.items():
            train_autoencoder(coder, optimizers[name], values, leader, name)
    for name, (send, _) in VARIANTS.items():
        training = copy.deepcopy(start)
        coder = coders["server" if "server" in name else "ring"]
        errors = []
        for parts in given[first:]:
            errors.append(training.sparse_step(parts, send, coder)[1])
            if training.diverged:
                break
        yield _record(name, seed, training, images, errors)


def _record(variant: str, seed: int, training: Training, images: Images, errors: list[float]) -> dict[str, Any]:
    known = [error for error in errors if math.isfinite(error)]
    return {
        "trial": "lgc",
        "variant": variant,
        "seed": seed,
        "settings": asdict(training.settings),
        "accuracy": None if training.diverged else accuracy(training.model, images),
        "error": round(sum(known) / len(known), 4) if known else None,
    }
