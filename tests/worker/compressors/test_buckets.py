"""AdaComp on buckets of many parameters of odd sizes, beside its definition in numpy, one parameter after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from p4reduce.compressors import AdaComp, Policy
from p4reduce.compressors.selection import flat
from p4reduce.testing.in_process import exchange_all, groups
from rigs.kernels import bits

Floats = NDArray[np.float32]
SIZES = (1, 2, 6, 7, 8, 49, 50, 51, 63, 64, 65, 500, 501, 999, 1, 0, 3, 1024, 77)
LENGTHS = (7, 50, 63, 64, 65, 500)
"""Of bins; below 64 an element takes 8 bits on the way."""
WORLD_SIZE = 3
STEPS = 4


def choose(residue: Floats | None, gradient: Floats, length: int) -> tuple[Floats, NDArray[np.bool_], np.float32]:
    """G = R + dW, the elements where |G + dW| reaches the largest |G| of their bin, and the mean of these."""
    total = gradient.copy() if residue is None else residue + gradient
    chosen = np.zeros(len(total), bool)
    largest = []
    for at in range(0, len(total), length):
        most = np.abs(total[at : at + length]).max()
        largest.append(most)
        ahead = total[at : at + length] + gradient[at : at + length]
        chosen[at : at + length] = (np.abs(ahead) >= most) & (most > 0)
    if not gradient.any():
        chosen[:] = False
    scale = np.float32(np.mean(largest, dtype=np.float64)) if largest else np.float32(0)
    return total, chosen & (total != 0), scale


class Defined:
    """One parameter on all ranks, in the form gather or with levels in the form sum."""

    def __init__(self, length: int, levels: int | None) -> None:
        self.length, self.levels = length, levels
        self.residues: list[Floats | None] = [None] * WORLD_SIZE
        self.unit_of: float | None = None

    def step(self, gradients: Sequence[Floats]) -> Floats:
        """Return the mean over the ranks."""
        found = [choose(*both, self.length) for both in zip(self.residues, gradients, strict=True)]
        scales = np.array([scale for *_, scale in found], np.float32)
        if self.levels is not None and self.unit_of is None:
            self.unit_of = self.agreed(scales)
        total = np.zeros(len(gradients[0]))
        for rank, (own, chosen, scale) in enumerate(found):
            weight, unit = 1, float(scale)
            if self.levels is not None:
                assert self.unit_of is not None
                unit = self.unit_of / self.levels
                weight = min(self.levels, max(1, round(float(scale) / unit))) if unit > 0 else 1
            signs = np.sign(own) * chosen
            total += signs.astype(np.float64) * (unit if self.levels is None else weight)
            self.residues[rank] = np.where(chosen, own - signs * np.float32(weight * unit), own)
        if self.levels is None:
            return (total / WORLD_SIZE).astype(np.float32)
        assert self.unit_of is not None
        mean = total.astype(np.float32) * np.float32(self.unit_of / self.levels / WORLD_SIZE)
        self.unit_of = self.agreed(scales)
        return mean

    def agreed(self, scales: Floats) -> float:
        return float(scales.mean(dtype=np.float64) if self.levels == 1 else scales.max())


def drawn(rank: int, step: int, number: int) -> torch.Tensor:
    """A gradient of that parameter: some of the numbers alike, some parameters not used on a rank."""
    generator = torch.Generator().manual_seed(10_000 * rank + 100 * step + number)
    gradient = torch.randn(SIZES[number], generator=generator)
    if number % 5 == 2:
        gradient = gradient.round()
    return gradient * ((number + step + rank) % 7 != 0)


@pytest.mark.parametrize("levels", [None, 1, 3, 128])
@pytest.mark.parametrize("length", LENGTHS)
def test_many_parameters_of_odd_sizes(length: int, levels: int | None) -> None:
    """All in one bucket, in one buffer as DDP has them, then in two, and of tensors of their own."""
    names = [f"p{number}" for number in range(len(SIZES))]
    policy = Policy(names=[("p*", length)])
    form = "gather" if levels is None else "sum"
    ranks = [AdaComp(policy, form, levels=levels or 1) for _ in range(WORLD_SIZE)]
    defined = [Defined(length, levels) for _ in SIZES]
    everything = list(range(len(SIZES)))
    layouts = ([everything], [everything], [everything[9:], everything[:9]], [everything[::-1]])
    for step, buckets in enumerate(layouts[:STEPS]):
        for bucket in buckets:
            gradients = []
            for rank in range(WORLD_SIZE):
                own = [drawn(rank, step, number) for number in bucket]
                parts = own if step == 1 else torch.split(torch.cat(own), [SIZES[number] for number in bucket])
                gradients.append({names[number]: part for number, part in zip(bucket, parts, strict=True)})
            outcomes = exchange_all(ranks, gradients, groups(WORLD_SIZE))
            for number in bucket:
                mean = defined[number].step([drawn(rank, step, number).numpy() for rank in range(WORLD_SIZE)])
                for rank, outcome in enumerate(outcomes):
                    where = f"{names[number]} on rank {rank} in step {step}"
                    assert bits(outcome.means[names[number]]) == bits(mean + 0), where
                    assert bits(ranks[rank].residue(names[number])) == bits(defined[number].residues[rank]), where


def test_tensors_of_one_memory_are_not_copied() -> None:
    memory = torch.arange(40, dtype=torch.float32)
    own = [memory[3:7], memory[10:10], memory[30:]]
    numbers, begin = flat(own)
    assert np.shares_memory(numbers, memory.numpy()) and begin.tolist() == [3, 10, 30]
    apart = [memory[3:7], torch.ones(2), memory[::2]]
    numbers, begin = flat(apart)
    assert not np.shares_memory(numbers, memory.numpy()) and begin.tolist() == [0, 4, 6]
    assert numbers.tolist() == [*range(3, 7), 1, 1, *range(0, 40, 2)]
    assert flat([]).numbers.size == 0


def test_a_parameter_that_overflows_is_named_among_many() -> None:
    ranks = [AdaComp(Policy(names=[("p*", 7)]), "gather")]
    gradients = {"p0": torch.ones(9), "p1": torch.full((9,), 3e38), "p2": torch.ones(9)}
    exchange_all(ranks, [gradients], groups(1))
    state = ranks[0].state_dict()
    state["residues"]["p1"] = torch.full((9,), 3e38)
    ranks[0].load_state_dict(state)
    with pytest.raises(Exception, match="the residue of 'p1' overflows float32"):
        exchange_all(ranks, [gradients], groups(1))
