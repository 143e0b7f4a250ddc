"""Gradients that cannot be summed are refused by name and without a trace; zeros and new ones are handled.

Ranks whose compressors or gradients differ all get an error, over a switch and in one process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Compressor, OmniReduce, Policy, ScaleCom
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.errors import CollectiveMismatchError, InvalidTensorError
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce.testing.local_group import LocalGroup
from rigs.limits import LIMIT_S
from rigs.ranks import MAKERS, equal, gradients_of, make, odd, over_switch


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", MAKERS)
def test_nan_and_infinity_are_refused_by_name_before_anything_is_sent_or_kept(name: str, bad: float) -> None:
    compressors = [make(name) for _ in range(2)]

    def rank_main(comm: Communicator) -> tuple[bool, int]:
        mine = compressors[comm.rank]
        for step in range(2):
            all_reduce_compressed(comm, mine, odd(comm.rank, step))
        state, sent = mine.state_dict(), comm.stats.blocks_up
        gradients = odd(comm.rank, 2)
        gradients["transposed"][3, 4] = bad
        gradients["bias"][1] = bad
        with pytest.raises(InvalidTensorError, match="gradient of transposed, bias holds a NaN or an infinity: lower"):
            all_reduce_compressed(comm, mine, gradients)
        unsent = comm.stats.blocks_up == sent
        unchanged = equal(mine.state_dict(), state)
        all_reduce_compressed(comm, mine, odd(comm.rank, 2))  # all ranks skipped it: they can go on
        return unchanged, unsent

    with LocalGroup(2) as group:
        assert group.run(rank_main) == [(True, True)] * 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32])
@pytest.mark.parametrize("compressor", [AdaComp(), ScaleCom(), OmniReduce()], ids=lambda one: one.name)
def test_other_types_are_refused_by_name(compressor: Compressor, dtype: torch.dtype, comm: Communicator) -> None:
    gradients = {**gradients_of(0, 0), "fc.weight": torch.ones(3, 3, dtype=dtype)}
    with pytest.raises(InvalidTensorError, match=rf"gradient of fc\.weight \({dtype}\) is not float32, float16"):
        all_reduce_compressed(comm, compressor, gradients)
    assert comm.stats.blocks_up == 0
    assert compressor.residue_norm() == 0


@pytest.mark.parametrize("name", ["none", "adacomp, momentum", "adacomp, sum", "scalecom", "omnireduce", "quantize"])
def test_gradients_of_16_bits_are_compressed_in_float32(name: str) -> None:
    """Beside float32 in one bucket: the means are those of the same numbers as float32, rounded."""
    types = dict(zip(odd(0, 0), itertools.cycle([torch.bfloat16, torch.float32, torch.float16]), strict=False))

    def narrow(rank: int, step: int) -> dict[str, torch.Tensor]:
        return {key: tensor.to(types[key]) for key, tensor in odd(rank, step).items()}

    def wide(rank: int, step: int) -> dict[str, torch.Tensor]:
        return {key: tensor.float() for key, tensor in narrow(rank, step).items()}

    mine, others = ([make(name) for _ in range(2)] for _ in range(2))
    for found, wanted in zip(over_switch(mine, narrow, 3), over_switch(others, wide, 3), strict=True):
        for (outcome, _), (exact, _) in zip(found, wanted, strict=True):
            for key, mean in outcome.means.items():
                assert mean.dtype == types[key] and torch.equal(mean, exact.means[key].to(types[key]))
    assert all(equal(one.state_dict(), other.state_dict()) for one, other in zip(mine, others, strict=True))


@pytest.mark.parametrize("name", sorted(name for name in MAKERS if name != "none" and "quantize" not in name))
def test_gradients_of_zeros_send_nothing_and_keep_the_residue(name: str) -> None:
    """A layer that was not used: its residue and its velocity wait."""
    compressors = [make(name) for _ in range(2)]

    def source(rank: int, step: int) -> dict[str, torch.Tensor]:
        given = {key: one for key, one in odd(rank, step).items() if key in ("conv", "transposed")}
        return given if step < 4 else {key: torch.zeros_like(one) for key, one in given.items()}

    for _ in over_switch(compressors, source, 4):
        pass
    kept = [one.state_dict() for one in compressors]
    assert all(state["residues"]["transposed"].any() for state in kept)
    for found in over_switch(compressors, source, range(4, 7)):
        assert not any(mean.any() for outcome, _ in found for mean in outcome.means.values())
        assert all(report.bytes_up < 4000 for _, report in found)  # headers; 28 kB are the dense gradients
    for one, state in zip(compressors, kept, strict=True):
        assert all(equal(one.state_dict()[kind], state[kind]) for kind in ("residues", "velocities"))


@pytest.mark.parametrize("name", MAKERS)
def test_a_parameter_that_appears_later_begins_then(name: str) -> None:
    """Its results from the first gradient on are those that it has alone."""

    def later(rank: int, step: int) -> dict[str, torch.Tensor]:
        given = odd(rank, step)
        return given if step >= 3 else {key: given[key] for key in ("conv", "bias")}

    compressors, alone = ([make(name) for _ in range(2)] for _ in range(2))
    found = list(over_switch(compressors, later, 6))
    by_itself = list(over_switch(alone, lambda rank, step: {"transposed": odd(rank, step)["transposed"]}, range(3, 6)))
    assert list(found[2][0][0].means) == ["conv", "bias"]
    for step, expected in zip(found[3:], by_itself, strict=True):
        for outcome, _ in step:
            mean, apart = outcome.means["transposed"], expected[0][0].means["transposed"]
            torch.testing.assert_close(mean, apart, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["sum", "gather", "auto", "shared"])
def test_a_residue_that_overflows_is_refused(form: str) -> None:
    """The residue of 3e38, less the scale, overflows; in the form shared that of an element never chosen does."""

    def huge(rank: int, step: int) -> dict[str, torch.Tensor]:
        return {"w": torch.tensor([[3e38, 2e38, 1.0, 1.0]])}

    two = Policy(linear=2)
    make_one = (lambda: ScaleCom(two, b=1.0, value_bits=32)) if form == "shared" else (lambda: AdaComp(two, form))
    with pytest.raises(
        InvalidTensorError, match="the residue of 'w' overflows float32: lower the learning rate or clip"
    ):
        for _ in over_switch([make_one() for _ in range(2)], huge, 4):
            pass


def settled(name: str, change: Callable[[dict[str, Any]], object]) -> list[Compressor]:
    """Return two ranks after a step, of which the second has loaded a state that was changed."""
    compressors = [MAKERS[name]() for _ in range(2)]
    exchange_all(compressors, [gradients_of(rank, 0) for rank in range(2)], groups(2))
    state = compressors[1].state_dict()
    change(state)
    compressors[1].load_state_dict(state)
    return compressors


PAIRS: dict[str, Callable[[], list[Compressor]]] = {
    "momentum": lambda: [AdaComp(momentum=momentum) for momentum in (0.9, 0.8)],
    "method": lambda: [AdaComp(form="gather"), OmniReduce()],
    "scale": lambda: settled("adacomp, sum", lambda state: state["scales"].update({"fc.weight": 7.0})),
    "steps of AdaComp": lambda: settled("adacomp, sum", lambda state: state["steps"].update({"fc.weight": 0})),
    "steps of ScaleCom": lambda: settled("scalecom, 32 bits", lambda state: state["steps"].update({"fc.weight": 0})),
    "parameters": lambda: [AdaComp() for _ in range(2)],
}
"""What differs, and the compressors of two ranks."""


@pytest.mark.parametrize("differs", PAIRS)
def test_ranks_at_odds_get_an_error(differs: str) -> None:
    given = [gradients_of(rank, 1) for rank in range(2)]
    if differs == "parameters":
        given[1]["further"] = torch.ones(3, 3)

    def refused(comm: Communicator) -> None:
        with pytest.raises(CollectiveMismatchError, match="the ranks called different collectives"):
            all_reduce_compressed(comm, compressors[comm.rank], given[comm.rank])

    compressors = PAIRS[differs]()
    with LocalGroup(2, timeout_s=LIMIT_S) as group:
        group.run(refused)
    with pytest.raises(AssertionError, match="the ranks ask for different collectives"):
        exchange_all(compressors, given, groups(2))
