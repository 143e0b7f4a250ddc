"""Compressors' kernels against a definition in torch, bit for bit: messages, what is kept, states, means, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from p4reduce.compressors import AdaComp, Compressor, Form, Policy, ScaleCom, Step
from p4reduce.compressors.block_sparsifier import by_bin, without_padding
from p4reduce.compressors.methods import adacomp, scalecom
from p4reduce.compressors.methods.adacomp import mean_of
from p4reduce.compressors.selection import Selection, Selections, Signs, join
from p4reduce.compressors.step import ParameterState
from p4reduce.errors import InvalidTensorError
from rigs.kernels import bits
from rigs.ranks import group

NASTY = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, -1e-45, 1.2e-38, 3e38, -3e38, 1e30, 2.0, -2.0]
"""Zeros, ties, denormals, and what overflows when it is added up or doubled."""
METHODS = {
    "gather": lambda length: AdaComp(policy(length), "gather"),
    "sum": lambda length: AdaComp(policy(length), "sum", levels=3),
    "shared": lambda length: AdaComp(policy(length), "shared"),
    "scalecom": lambda length: ScaleCom(policy(length)),
    "scalecom, two": lambda length: ScaleCom(policy(length), per_chunk=2),
}


T = TypeVar("T")


def select_by_bin(step: Step, length: int, *, per_bin: int = 0) -> Selection:
    total = step.add_residue().float()
    if not torch.isfinite(total).all():
        raise step.not_finite()
    if not step.flat.any():
        return Selection(total, torch.zeros(0, dtype=torch.int64))
    binned = by_bin(total, length)
    if per_bin:
        order = binned.abs().sort(dim=1, descending=True, stable=True).indices[:, :per_bin]
        chosen = torch.zeros_like(binned, dtype=torch.bool).scatter_(1, order, True) & (binned != 0)
    else:
        most = binned.abs().amax(dim=1, keepdim=True)
        chosen = ((binned + by_bin(step.flat, length)).abs() >= most) & (most > 0)
    return Selection(total, torch.nonzero(without_padding(chosen, total.numel())).reshape(-1))


def largest_by_bin(total: torch.Tensor, length: int) -> torch.Tensor:
    return by_bin(total.abs(), length).amax(dim=1) if total.numel() else total


def select_all_by_bin(steps: Sequence[Step], lengths: Sequence[int]) -> Selections:
    """One parameter after the other."""
    own = [select_by_bin(step, length) for step, length in zip(steps, lengths, strict=True)]
    largest = [largest_by_bin(one.total, length) for one, length in zip(own, lengths, strict=True)]
    return join(own, [mean_of(of_bins) for of_bins in largest])


def subtract_signs(selections: Selections, amounts: NDArray[np.float32]) -> Signs:
    edges, all_indices = [0, *selections.ends.tolist()], torch.from_numpy(selections.indices)
    kept, signs = [], []
    for number, amount in enumerate(amounts.tolist()):
        total = selections.total[selections.begin[number] : selections.begin[number + 1]]
        indices = all_indices[edges[number] : edges[number + 1]]
        kept.append(indices[total[indices] != 0])
        signs.append(total[kept[-1]].sign())
        total[kept[-1]] -= signs[-1] * amount
    ends = np.cumsum([len(own) for own in kept])
    return Signs(torch.cat(kept).numpy(), torch.cat(signs).to(torch.int8).numpy(), ends)


@contextmanager
def by_definition() -> Iterator[None]:
    with (
        mock.patch.multiple(
            adacomp,
            select_by_bin=select_by_bin,
            select_all_by_bin=select_all_by_bin,
            largest_by_bin=largest_by_bin,
            subtract_signs=subtract_signs,
        ),
        mock.patch.object(scalecom, "select_by_bin", select_by_bin),
    ):
        yield


def both(call: Callable[[], T]) -> tuple[T | str, T | str]:
    """What `call` returns, or the error it raises: of the kernels, and by definition."""
    found = outcome(call)
    with by_definition():
        return found, outcome(call)


def outcome(call: Callable[[], T]) -> T | str:
    try:
        return call()
    except InvalidTensorError as error:
        return str(error)


def policy(length: int) -> Policy:
    return Policy(length, length, length, length, names=[("w", length)])


def as_values(outcome: Any) -> Any:
    """A Compressed, or an error's text, in values that `bits` compares."""
    if isinstance(outcome, str):
        return outcome
    message = {
        key: getattr(value, "_asdict", lambda value=value: value)() for key, value in vars(outcome.message).items()
    }
    return bits([type(outcome.message).__name__, message, outcome.kept, outcome.sent_bits, list(outcome.metadata)])


def compressed_alike(compressor: Compressor, gradient: torch.Tensor, residue: torch.Tensor | None) -> Any:
    form = Form(compressor.form)
    state = ParameterState(steps=0, residue=residue, scale=0.3)

    def compress() -> Any:
        return as_values(compressor.compress(Step("w", gradient, state, form, group())))

    found, defined = both(compress)
    assert found == defined
    return found


numbers = st.one_of(st.sampled_from(NASTY), st.floats(width=32, allow_nan=False, allow_infinity=False))


@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(METHODS)),
    st.integers(1, 9),
    st.lists(st.tuples(numbers, numbers), max_size=40),
    st.booleans(),
)
@example("gather", 3, [(3e38, 3e38)], True)
@example("scalecom", 3, [(1.0, 0.0), (-1.0, 0.0), (0.5, 0.25)], True)
@example("scalecom, two", 5, [(0.0, 1.0), (0.0, 2.0), (0.0, -1.0), (0.0, 1.0), (0.0, 0.0)], True)
@example("gather", 2, [(1.0, 0.0), (1.0, -0.0)], True)
@example("shared", 2, [(-1.0, 1.0), (0.5, 0.1)], True)
@pytest.mark.slow
def test_kernels_equal_the_definition_for_unusual_numbers(
    method: str, length: int, pairs: list[tuple[float, float]], first: bool
) -> None:
    residue, gradient = (torch.tensor([pair[i] for pair in pairs], dtype=torch.float32) for i in range(2))
    compressor = METHODS[method](length)
    compressed_alike(compressor, gradient.reshape(1, -1), None if first else residue)


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize(
    ("elements", "length"), [(1, 50), (50, 50), (51, 50), (9999, 50), (9999, 500), (30_000, 16384)]
)
def test_kernels_equal_the_definition_for_normal_numbers(method: str, elements: int, length: int) -> None:
    for seed in range(4):
        draw = torch.Generator().manual_seed(seed)
        gradient, residue = torch.randn(2, elements, generator=draw)
        compressed_alike(METHODS[method](length), gradient.reshape(1, -1), 2 * residue if seed else None)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", [0, 57, 99])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_kernels_refuse_numbers_that_are_not_finite(method: str, where: int, bad: float) -> None:
    """It is refused, with a residue and without."""
    gradient = torch.randn(10, 10, generator=torch.Generator().manual_seed(1))
    gradient.view(-1)[where] = bad
    said = compressed_alike(METHODS[method](7), gradient, torch.zeros(100))
    assert said.startswith("the residue of 'w' overflows float32")
    assert compressed_alike(METHODS[method](7), gradient, None).startswith("the gradient of 'w' overflows float32")


@pytest.mark.parametrize("method", sorted(METHODS))
def test_layouts_and_residues_of_other_kinds(method: str) -> None:
    """Strided, negated without a copy, in double precision, of another length."""
    draw = torch.Generator().manual_seed(2)
    gradient, residue = torch.randn(2, 60, generator=draw)
    negated = torch.view_as_complex(torch.randn(60, 2, generator=draw)).conj().imag
    assert negated.is_neg()
    for laid_out, kept in [
        (torch.randn(120, generator=draw)[::2], residue),
        (gradient, torch.randn(120, generator=draw)[::2]),
        (gradient.reshape(6, 10).t(), residue),
        (negated, residue),
        (gradient, residue.double()),
        (gradient.requires_grad_(), residue),
        (gradient, residue[:59]),
        (torch.zeros(60), residue),
        (torch.zeros(0), torch.zeros(0)),
    ]:
        compressed_alike(METHODS[method](7), laid_out, kept)


class ChoosesTheFirst(AdaComp):
    """AdaComp with another choice."""

    name = "chooses-the-first"

    def select(self, step: Step, length: int) -> Selection:
        return Selection(step.add_residue(), torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize("form", ["gather", "shared"])
def test_a_subclass_with_another_choice_makes_that(form: str) -> None:
    step = Step("w", torch.ones(4, 5), ParameterState(), Form(form), group())
    message = ChoosesTheFirst(policy(5), form).compress(step).message
    assert len(message.data) == 9  # type: ignore[union-attr]  # one entry
