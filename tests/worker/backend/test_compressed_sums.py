"""Sums of the backend that a compressor sends: which calls, and what is kept between them; without processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest
import torch

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Compressor, Quantize
from p4reduce.compressors.interface import by_text
from p4reduce.errors import CollectiveMismatchError, InvalidTensorError, PeerRefusedError
from p4reduce.paths.switch import SwitchPath
from p4reduce.pytorch.backend import compressed
from p4reduce.pytorch.backend.compressed import CompressedSums
from p4reduce.pytorch.backend.options import Options
from p4reduce.pytorch.refused_sums import all_may_go_on
from p4reduce.testing.local_group import LocalGroup
from rigs.host_group import HostGroup

BYTES = 400
A, B, SMALL = torch.zeros(100), torch.zeros(50, 4), torch.zeros(99)


def calls(sums: CompressedSums, *tensors: torch.Tensor) -> str:
    """Make these calls, and end the step; return for each "c" if it is compressed, "." if it is sent in full."""
    found = "".join("c" if sums.names("all_reduce", [tensor]) else "." for tensor in tensors)
    sums.end_step()
    return found


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([(A, B, A), (A, B, A)], ["...", "ccc"]),
        ([(A,), (A, A), (A, A)], [".", "c.", "cc"]),
        ([(A, B), (B, A), (B, A), (B,), (B, A), (B, A)], ["..", "..", "cc", "c", "c.", "cc"]),
        ([(A, SMALL, B), (A, B), (SMALL, A, SMALL, SMALL, B)], ["...", "cc", ".c..c"]),
        ([(A,), (), (A,)], [".", "", "c"]),  # two optimizers
        ([(A,), (A.to(torch.float64),), (A.to(torch.bfloat16),), (A.int(),)], [".", ".", ".", "."]),
        ([(torch.zeros(0),), (torch.zeros(0),)], [".", "."]),
    ],
)
def test_a_call_that_was_at_its_place_in_the_step_before_is_compressed(
    steps: Sequence[Sequence[torch.Tensor]], found: list[str]
) -> None:
    sums = CompressedSums(Quantize(), BYTES)
    assert [calls(sums, *step) for step in steps] == found


def test_a_step_that_differs_is_told_once_and_the_first_is_not(caplog: pytest.LogCaptureFixture) -> None:
    sums = CompressedSums(Quantize(), BYTES)
    with caplog.at_level(logging.WARNING):
        for step in ((A, B), (A, B)):
            calls(sums, *step)
        assert not caplog.messages
        for step in ((A, A), (A, B), (B,)):
            calls(sums, *step)
    (message,) = caplog.messages
    assert message.startswith("sum 1 of this step, all_reduce of 100 torch.float32, is not that of the step before")


def test_calls_without_an_optimizer_are_told_and_not_counted_forever(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "LONGEST_STEP", 5)
    sums = CompressedSums(Quantize(), BYTES)
    with caplog.at_level(logging.WARNING):
        for _ in range(9):
            assert not sums.names("all_reduce", [A])
    assert ["without a step of an optimizer" in message for message in caplog.messages] == [True]
    assert len(sums._calls) == 5


def test_a_step_of_an_optimizer_within_the_backward_pass_does_not_end_it() -> None:
    """Each layer has an optimizer of its own, which makes its step as soon as its gradient is there."""
    layers = [torch.nn.Linear(10, 10, bias=False) for _ in range(3)]
    sums = CompressedSums(Quantize(), BYTES)
    names: list[list[str]] = []
    for layer in layers:
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

        def reduce(weight: torch.Tensor, optimizer: torch.optim.Optimizer = optimizer) -> None:
            assert weight.grad is not None
            names.append(sums.names("all_reduce", [weight.grad]))
            optimizer.step()

        layer.weight.register_post_accumulate_grad_hook(reduce)
    for _ in range(2):
        torch.nn.Sequential(*layers)(torch.ones(1, 10)).sum().backward()
    assert names[:3] == [[], [], []]
    assert [name for (name,) in names[3:]] == [f"{at}.0 all_reduce of 100 torch.float32" for at in range(3)]


def given(rank: int, step: int) -> list[torch.Tensor]:
    """Two tensors of the same size, as of two equal layers: of numbers around 0 and around 100."""
    draw = torch.Generator().manual_seed(100 * step + rank)
    return [torch.randn(20, 30, generator=draw), torch.randn(20, 30, generator=draw) + 100]


def means_of(
    group: LocalGroup, compressors: Sequence[Compressor], given: Callable[[int, int], list[torch.Tensor]], steps: int
) -> list[list[list[torch.Tensor]]]:
    """Return each rank's means in `steps` steps after the first, whose sums are in full; `given`: of rank and step."""

    def one_rank(comm: Communicator) -> list[list[torch.Tensor]]:
        sums, found = CompressedSums(compressors[comm.rank], 0), []
        for step in range(steps + 1):
            tensors = given(comm.rank, step)
            names = [sums.names("all_reduce", [tensor]) for tensor in tensors]
            if step:
                found.append(
                    [sums.means(comm, name, [tensor], 60)[0] for name, tensor in zip(names, tensors, strict=True)]
                )
            sums.end_step()
        return found

    return group.run(one_rank)


@pytest.mark.parametrize("text", ["quantize", "quantize:bits=16", "adacomp:linear=50,form=gather"])
def test_means_and_residues_add_up_to_what_was_given(text: str) -> None:
    """Residues go by the place in the step: nothing of one tensor is added to another of its size."""
    ranks, steps = 3, 5
    compressors = [by_text(text) for _ in range(ranks)]

    with LocalGroup(ranks) as group:
        means = means_of(group, compressors, given, steps)
    for place in range(2):
        key = f"{place}.0 all_reduce of 600 torch.float32"
        residues = [compressor.residue(key) for compressor in compressors]
        kept = sum(residue.view(20, 30) for residue in residues if residue is not None)
        got = sum(step[place] for step in means[0])
        wanted = sum(given(rank, step)[place] for rank in range(ranks) for step in range(1, steps + 1))
        torch.testing.assert_close(ranks * got + kept, wanted, rtol=0, atol=2e-3)
        assert all(torch.equal(step[place], other[place]) for step, other in zip(means[0], means[2], strict=True))


@pytest.mark.parametrize("text", ["quantize", "adacomp", "adacomp:momentum=0.9"])
def test_a_sum_with_a_nan_changes_no_rank_s_state(text: str) -> None:
    compressors = [by_text(text) for _ in range(2)]

    def one_rank(comm: Communicator) -> list[bool]:
        sums = CompressedSums(compressors[comm.rank], 0)
        settled = []
        for step in range(4):
            (name,) = sums.names("reduce_scatter", [A]) or [""]
            gradient = torch.full((100,), torch.nan if step == 2 and comm.rank == 1 else 1.0)
            if step:
                try:
                    sums.means(comm, [name], [gradient], 60)
                except (InvalidTensorError, PeerRefusedError) as error:
                    settled.append(all_may_go_on(comm, error))
            sums.end_step()
        return settled

    with LocalGroup(2) as group:
        assert group.run(one_rank) == [[True], [True]]
    key = "0.0 reduce_scatter of 100 torch.float32"
    assert [compressor.state_of(key).steps for compressor in compressors] == [2, 2]


def test_a_large_sum_of_ranks_that_share_hosts_is_compressed_once_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, steps, size = 4, 3, SwitchPath.least_host_bytes // 4
    compressors = [by_text("quantize") for _ in range(ranks)]

    def gradient(rank: int, step: int) -> list[torch.Tensor]:
        return [torch.randn(size, generator=torch.Generator().manual_seed(10 * step + rank))]

    with HostGroup(monkeypatch, [0, 0, 1, 1]) as group:
        means = means_of(group, compressors, gradient, steps)
        assert len(group.shards.groups) == 2
    found, others = ([mean for (mean,) in means[rank]] for rank in (0, 3))
    assert all(map(torch.equal, found, others))
    residues = [compressor.residue(f"0.0 all_reduce of {size} torch.float32") for compressor in compressors]
    parts = [residue.flatten() for residue in residues if residue is not None]
    assert sum(len(part) for part in parts) == 2 * size, "each host has the whole, in two parts"
    kept = torch.cat([parts[0] + parts[2], parts[1] + parts[3]])
    wanted = sum(gradient(rank, step)[0] for rank in range(ranks) for step in range(1, steps + 1)) / ranks
    torch.testing.assert_close(sum(found) + kept / 2, wanted, rtol=0, atol=1e-4)


def test_ranks_whose_calls_differ_get_an_error() -> None:
    def one_rank(comm: Communicator) -> None:
        sums = CompressedSums(Quantize(), 0)
        for step in range(3):
            if names := sums.names("all_reduce", [A]):
                sums.means(comm, names, [A], 60)
            else:
                comm.all_reduce(A)
            if comm.rank == 0 or step == 0:
                sums.end_step()  # rank 1's optimizer makes no second step

    with LocalGroup(2) as group, pytest.raises(CollectiveMismatchError):
        group.run(one_rank)


def test_options_name_a_compressor_and_the_environment_one_for_the_group_of_all_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = Quantize(16)
    assert Options().compressor_of(world=True) is None
    assert Options(compressor=own).compressor_of(world=False) is own
    monkeypatch.setenv("P4REDUCE_COMPRESSOR", "adacomp:linear=50,momentum=0.9,form=gather")
    made = Options().compressor_of(world=True)
    assert isinstance(made, AdaComp) and (made.policy.linear, made.momentum, made.form) == (50, 0.9, "gather")
    assert Options().compressor_of(world=False) is None
    assert Options(float_sums="gloo").compressor_of(world=True) is None
    assert Options(compressor=own).compressor_of(world=True) is own
    with pytest.raises(ValueError, match="give one of the two"):
        Options(compressor="quantize", float_sums="gloo")
    with pytest.raises(ValueError, match="compress_bytes is -1"):
        Options(compress_bytes=-1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nosuch", "unknown compressor 'nosuch'; known are adacomp"),
        ("quantize:8", "'8' is no setting; write NAME:SETTING=VALUE"),
        ("quantize:bits=9", "bits is 9; give 16 or 8"),
        ("quantize:bits=8.0", "bits is 8.0; give 16 or 8"),
        ("quantize:bits=8,bits=16", "bits is given twice"),
        ("adacomp:linear=50,linear=60", "linear is given twice"),
        ("quantize:size=9", "unexpected keyword argument 'size'"),
        ("adacomp:momentum=much", "'adacomp:momentum=much': momentum is 'much'; give 0 or more, less than 1"),
    ],
)
def test_a_text_that_is_no_compressor_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        by_text(text)
    assert reason in str(caught.value)
