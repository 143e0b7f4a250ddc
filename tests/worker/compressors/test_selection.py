"""What AdaComp and ScaleCom choose, beside the definition in numpy: of one parameter, and in buckets of many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from p4reduce.compressors import AdaComp, Form, ParameterState, Policy, Step
from p4reduce.compressors.selection import flat, select_by_bin, subtract_signs
from p4reduce.errors import InvalidTensorError
from p4reduce.testing.in_process import exchange_all, groups
from rigs.bits import bits
from rigs.ranks import choose, group

Floats = NDArray[np.float32]
NASTY = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, -1e-45, 1.2e-38, 3e38, -3e38, 1e30, 2.0, -2.0]
"""Zeros, ties, denormals, and what overflows when it is added up or doubled."""
SIZES = (1, 2, 6, 7, 8, 49, 50, 51, 63, 64, 65, 500, 501, 999, 1, 0, 3, 1024, 77)
LENGTHS = (7, 50, 63, 64, 65, 500)
"""Elements of bins; below 64 an element takes 8 bits on the way."""
WORLD_SIZE = 3
STEPS = 4


def scale_of(largest: Floats) -> np.float32:
    return np.float32(np.mean(largest, dtype=np.float64)) if len(largest) else np.float32(0)


def check(gradient: torch.Tensor, residue: torch.Tensor | None, length: int) -> str:
    """Choose in each way, with kernels and by the definition; return the error that a sum is not finite, else ""."""
    step = Step("w", gradient, ParameterState(residue=residue), Form.GATHER, group(), length)
    numbers = gradient.detach().resolve_neg().reshape(-1).numpy()
    for largest_only in (False, True):
        with np.errstate(over="ignore", invalid="ignore"):
            total, chosen, largest = choose(
                None if residue is None else residue.float().numpy(), numbers, length, largest_only
            )
        if not np.isfinite(total).all():
            with pytest.raises(InvalidTensorError) as caught:
                select_by_bin([step], largest_only=largest_only)
            return str(caught.value)
        found = select_by_bin([step], largest_only=largest_only)
        scale, ends = np.array([scale_of(largest)]), np.array([chosen.sum()])
        assert bits(found[:1] + found[2:]) == bits((total, np.flatnonzero(chosen), ends, scale))
        sent, left = np.flatnonzero(chosen & (total != 0)), total.copy()
        signs = np.sign(total[sent])
        left[sent] -= signs * scale
        expected = (sent, signs.astype(np.int8), np.array([len(sent)]), scale)
        assert bits(subtract_signs(found, scale)) == bits(expected)
        assert bits(found.total) == bits(left)
    return ""


numbers = st.one_of(st.sampled_from(NASTY), st.floats(width=32, allow_nan=False, allow_infinity=False))


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.integers(1, 9), st.lists(st.tuples(numbers, numbers), max_size=40), st.booleans())
@example(3, [(3e38, 3e38)], False)
@example(3, [(1.0, 0.0), (-1.0, 0.0), (0.5, 0.25)], True)
@example(5, [(0.0, 1.0), (0.0, 2.0), (0.0, -1.0), (0.0, 1.0), (0.0, 0.0)], True)
@example(2, [(1.0, 0.0), (1.0, -0.0)], False)
@example(2, [(-1.0, 1.0), (0.5, 0.1)], False)
@pytest.mark.slow
def test_unusual_numbers(length: int, pairs: list[tuple[float, float]], first: bool) -> None:
    residue, gradient = (torch.tensor([pair[i] for pair in pairs], dtype=torch.float32) for i in range(2))
    check(gradient.reshape(1, -1), None if first else residue, length)


@pytest.mark.parametrize(
    ("elements", "length"), [(1, 50), (50, 50), (51, 50), (9999, 50), (9999, 500), (30_000, 16384)]
)
def test_normal_numbers(elements: int, length: int) -> None:
    for seed in range(4):
        gradient, residue = torch.randn(2, elements, generator=torch.Generator().manual_seed(seed))
        assert not check(gradient.reshape(1, -1), 2 * residue if seed else None, length)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", [0, 57, 99])
def test_numbers_that_are_not_finite_are_refused(where: int, bad: float) -> None:
    gradient = torch.randn(10, 10, generator=torch.Generator().manual_seed(1))
    gradient.view(-1)[where] = bad
    assert check(gradient, torch.zeros(100), 7).startswith("the residue of 'w' overflows float32")
    assert check(gradient, None, 7).startswith("the gradient of 'w' overflows float32")


def test_layouts_and_residues_of_other_kinds() -> None:
    """Strided, negated without a copy, in double precision; one of another length is refused."""
    draw = torch.Generator().manual_seed(2)
    gradient, residue = torch.randn(2, 60, generator=draw)
    negated = torch.view_as_complex(torch.randn(60, 2, generator=draw)).conj().imag
    assert negated.is_neg()
    for laid_out, kept in [
        (torch.randn(120, generator=draw)[::2], residue),
        (gradient, torch.randn(120, generator=draw)[::2]),
        (gradient.reshape(6, 10).t(), residue),
        (negated, residue),
        (negated[:1], residue[:1]),  # of one element, and so contiguous
        (gradient, residue.double()),
        (gradient.requires_grad_(), residue),
        (torch.zeros(60), residue),
        (torch.zeros(0), torch.zeros(0)),
    ]:
        assert not check(laid_out, kept, 7)
    step = Step("w", gradient, ParameterState(residue=residue[:59]), Form.GATHER, group(), 7)
    with pytest.raises(InvalidTensorError, match="gradient of 'w' has 60 elements, its residue 59: load the state"):
        select_by_bin([step])


class Defined:
    """One parameter on all ranks, in the form gather or sum."""

    def __init__(self, length: int, form: str) -> None:
        self.length, self.form = length, form
        self.residues: list[Floats | None] = [None] * WORLD_SIZE
        self.scale: float | None = None

    def step(self, gradients: Sequence[Floats]) -> Floats:
        """Return the mean over the ranks."""
        found = [choose(*both, self.length) for both in zip(self.residues, gradients, strict=True)]
        scales = np.array([scale_of(largest) for *_, largest in found], np.float32)
        agreed = float(scales.mean(dtype=np.float64))
        self.scale = agreed if self.scale is None else self.scale
        total = np.zeros(len(gradients[0]))
        for rank, ((own, chosen, _), scale) in enumerate(zip(found, scales, strict=True)):
            unit = float(scale) if self.form == "gather" else self.scale
            signs = np.sign(own) * chosen
            total += signs.astype(np.float64) * (unit if self.form == "gather" else 1)
            self.residues[rank] = np.where(signs != 0, own - signs * np.float32(unit), own)
        if self.form == "gather":
            return (total / WORLD_SIZE).astype(np.float32)
        mean = total.astype(np.float32) * np.float32(self.scale / WORLD_SIZE)
        self.scale = agreed
        return mean


def drawn(rank: int, step: int, number: int) -> torch.Tensor:
    """A gradient of that parameter: some of the numbers alike, some parameters not used on a rank, and one on none;
    some are small beside the others, and one grows from step to step."""
    generator = torch.Generator().manual_seed(10_000 * rank + 100 * step + number)
    gradient = torch.randn(SIZES[number], generator=generator)
    if number % 5 == 2:
        gradient = gradient.round()
    gradient *= {5: 1e-8, 6: 1e-6, 7: 1000.0**step}.get(number, 1.0)
    return gradient * ((number + step + rank) % 7 != 0) * (number != 9 or step > 0)


@pytest.mark.parametrize("form", ["gather", "sum"])
@pytest.mark.parametrize("length", LENGTHS)
def test_many_parameters_of_odd_sizes(length: int, form: str) -> None:
    """All in one bucket, in one buffer as DDP has them, then in two, and of tensors of their own."""
    names = [f"p{number}" for number in range(len(SIZES))]
    policy = Policy(names=[("p*", length)])
    ranks = [AdaComp(policy, form) for _ in range(WORLD_SIZE)]
    defined = [Defined(length, form) for _ in SIZES]
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
                    assert bits(outcome.means[names[number]] + 0) == bits(mean + 0), where
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
