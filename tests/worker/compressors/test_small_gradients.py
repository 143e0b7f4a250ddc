"""Values of one parameter do not depend on what lies beside it, small or large."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from p4reduce.codecs.formats import levels
from p4reduce.compressors import AdaComp, Compressor, OmniReduce, ScaleCom
from p4reduce.compressors.policy import Policy
from p4reduce.testing.in_process import exchange_all, groups
from rigs.ranks import gaussian

CHUNK = Policy(linear=8)
SHARED: list[Callable[[], Compressor]] = [
    lambda: AdaComp(CHUNK, "shared", value_bits=32),
    lambda: ScaleCom(CHUNK, b=1.0, value_bits=32),
]


@pytest.mark.parametrize("make", SHARED)
@pytest.mark.parametrize("order", [("small", "large"), ("large", "small")])
def test_a_small_parameter_beside_a_large_one_loses_nothing_in_the_form_shared(
    make: Callable[[], Compressor], order: tuple[str, str]
) -> None:
    """Of 1e-9 beside 100: the values at the leader's choice are as far apart."""
    sizes = {"small": 1e-9, "large": 100.0}
    compressors: list[Compressor] = [make() for _ in range(3)]
    received = {key: torch.zeros(4, 8, dtype=torch.float64) for key in order}
    given = {key: torch.zeros(4, 8, dtype=torch.float64) for key in order}
    for step in range(6):
        gradients = [{key: sizes[key] * gaussian((4, 8), 10 * step + rank) for key in order} for rank in range(3)]
        outcome = exchange_all(compressors, gradients, groups(3))[0]
        for key in order:
            received[key] += 3 * outcome.means[key].double()
            given[key] += sum(one[key].double() for one in gradients)
    for key in order:
        left = [one.residue(key) for one in compressors]
        kept = sum(one.double() for one in left if one is not None).view(4, 8)
        assert received[key].count_nonzero() > 8
        torch.testing.assert_close(received[key] + kept, given[key], rtol=0, atol=2e-5 * sizes[key])


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_largest_floats_stay_finite_in_narrow_values(bits: int, ranks: int) -> None:
    """Rounded up, 3.4e38 would be beyond float32: so would the mean, what was sent, and the residue then."""
    for make in (lambda: OmniReduce(ratio=1.0, value_bits=bits), lambda: AdaComp(form="shared", value_bits=bits)):
        compressors: list[Compressor] = [make() for _ in range(ranks)]
        given = {"w": torch.full((2, 60), 3.4e38) * torch.tensor([[1.0], [-1.0]])}
        for step in range(2):
            gradients = {"w": given["w"] if step == 0 else given["w"] * 1e-3}
            means = exchange_all(compressors, [gradients] * ranks, groups(ranks))[0].means["w"]
            assert means.isfinite().all()
            for one in compressors:
                residue = one.residue("w")
                assert residue is not None and residue.isfinite().all()
                assert residue.abs().max() <= 2.0**128 / levels(bits, ranks)  # one unit
            if step == 0:
                torch.testing.assert_close(means, given["w"], rtol=0, atol=2.0**128 / levels(bits, ranks))
