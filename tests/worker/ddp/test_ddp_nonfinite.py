"""A NaN or an infinity in some rank's gradients: all ranks raise, or all skip the step."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from p4reduce.communicator import Communicator
from p4reduce.compressors import Compressor
from p4reduce.errors import InvalidTensorError, NotFiniteError, PeerRefusedError, Reason
from p4reduce.pytorch.ddp import DDPState
from p4reduce.testing.local_group import LocalGroup
from rigs.buckets import Bucket, model_of, reduce_all
from rigs.ranks import MAKERS, equal

NAMES = ("first", "second", "third")
SHAPES = dict.fromkeys(NAMES, (40, 50))


def step_of(
    state: DDPState, model: torch.nn.Module, rank: int, step: int, spoil: Callable[[int, int, int], float] | None
) -> list[torch.Tensor]:
    """The means of a backward pass of three buckets; `spoil(rank, step, bucket)` is put into an element of each."""
    gradients = [*torch.randn(len(NAMES), 40, 50, generator=torch.Generator().manual_seed(100 * step + rank))]
    for index, gradient in enumerate(gradients):
        if spoil is not None and (bad := spoil(rank, step, index)):
            gradient[7, 7] = bad
    return reduce_all(state, model.parameters(), gradients)


def raised(call: Callable[[], Any]) -> BaseException:
    with pytest.raises((InvalidTensorError, PeerRefusedError)) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("bad_bucket", [0, 1, 2])
def test_by_default_all_ranks_raise_in_that_bucket_and_the_communicator_stays_usable(bad_bucket: int) -> None:
    def spoil(rank: int, step: int, bucket: int) -> float:
        return float("nan") if (rank, bucket) == (1, bad_bucket) else 0.0

    with LocalGroup(3) as group:

        def train(comm: Communicator) -> tuple[BaseException, torch.Tensor]:
            model = model_of(SHAPES)
            state = DDPState(comm, module=model)
            error = raised(lambda: step_of(state, model, comm.rank, 0, spoil))
            assert "this DDPState is finished, its communicator is not" in error.__notes__[0]
            assert raised(lambda: step_of(state, model, comm.rank, 0, None)) is error
            state.close()
            with DDPState(comm, module=model) as fresh:
                return error, step_of(fresh, model, comm.rank, 1, None)[2]

        results = group.run(train)
        for rank, (error, mean) in enumerate(results):
            if rank == 1:
                assert isinstance(error, NotFiniteError)
                assert f"the gradient of {NAMES[bad_bucket]} holds a NaN" in str(error)
            else:
                assert isinstance(error, PeerRefusedError)
                assert error.reasons == {1: Reason.NOT_FINITE}
            assert torch.equal(mean, results[0][1])
        assert len({comm.stats.collectives for comm in group.comms}) == 1


@pytest.mark.fault(
    'NaN or infinity on one rank in DDP with `on_nonfinite="skip"`: the step is skipped by all, compressors\' '
    "states unchanged"
)
@pytest.mark.parametrize(
    "name", ["dense", "adacomp", "adacomp, momentum", "adacomp, shared", "scalecom, 32 bits", "omnireduce", "quantize"]
)
def test_a_skipped_step_is_skipped_by_all_and_changes_no_state(name: str) -> None:
    """Ranks that skip two steps end where ranks end that never had them."""
    bad_steps = {2: (0, 1, float("inf")), 4: (1, 0, float("nan")), 5: (0, 2, -float("inf"))}
    """step: (rank, bucket, element)"""

    def spoil(rank: int, step: int, bucket: int) -> float:
        bad = bad_steps.get(step)
        return bad[2] if bad is not None and bad[:2] == (rank, bucket) else 0.0

    def train(steps: list[int]) -> list[tuple[list[list[torch.Tensor]], Any, int]]:
        with LocalGroup(2) as group:

            def rank_main(comm: Communicator) -> tuple[list[list[torch.Tensor]], Any, int]:
                model = model_of(SHAPES)
                compressor: Compressor | None = None if name == "dense" else MAKERS[name]()
                with DDPState(comm, compressor, module=model, on_nonfinite="skip") as state:
                    means = [step_of(state, model, comm.rank, step, spoil) for step in steps]
                    kept = None if compressor is None else compressor.state_dict()
                return means, kept, state.skipped_steps

            return group.run(rank_main)

    everything = train(list(range(7)))
    without = train([step for step in range(7) if step not in bad_steps])
    for rank in range(2):
        means, kept, skipped = everything[rank]
        assert skipped == 3
        for step, (_, bad_bucket, _) in bad_steps.items():
            for bucket, mean in enumerate(means[step]):
                assert bool(mean.isnan().all()) == (bucket >= bad_bucket)
                assert bool(mean.isfinite().all()) == (bucket < bad_bucket)
        good = [means[step] for step in range(7) if step not in bad_steps]
        for got, want in zip(good, without[rank][0], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
        assert equal(kept, without[rank][1])
        assert without[rank][2] == 0


def test_other_refusals_are_raised_even_where_steps_may_be_skipped() -> None:
    """Also where another rank has an infinity in the same bucket: all ranks decide alike."""
    with LocalGroup(2) as group:

        def train(comm: Communicator) -> BaseException:
            state = DDPState(comm, on_nonfinite="skip")
            gradient = torch.full((3,), float("inf")) if comm.rank == 0 else torch.ones(3, dtype=torch.float64)
            error = raised(lambda: state.reduce(Bucket(2, gradient, gradient, last=True)))  # type: ignore[arg-type]
            state.close()
            return error

        first, second = group.run(train)
        assert isinstance(first, NotFiniteError)
        assert type(second) is InvalidTensorError


def test_an_unknown_value_of_on_nonfinite_is_refused(comm: Communicator) -> None:
    with pytest.raises(ValueError, match='on_nonfinite is \'ignore\'; give "raise" or "skip"'):
        DDPState(comm, on_nonfinite="ignore")  # type: ignore[arg-type]


@pytest.mark.fault(
    '`on_nonfinite="skip"` on some ranks only: ValueError on every rank when the DDPState is constructed, with each '
    "rank's options"
)
def test_options_that_differ_are_an_error_on_every_rank() -> None:
    def make(comm: Communicator) -> None:
        told = "^DDPState's on_nonfinite is 'raise' on ranks 0, 2 and 'skip' on rank 1: give all ranks the same$"
        with pytest.raises(ValueError, match=told):
            DDPState(comm, on_nonfinite="skip" if comm.rank == 1 else "raise")

    with LocalGroup(3) as group:
        group.run(make)


def train_scaled(ranks: list[int], mean: Callable[[list[list[torch.Tensor]]], list[torch.Tensor]]) -> tuple[Any, ...]:
    """Train with a GradScaler; return the steps that it skipped, and the weights.

    Scales are so large that gradients are infinite: on both ranks, then, as it backs off and grows again, on rank 1
    alone. `mean` of the gradients of these ranks, one list for each.
    """
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 3))
    first = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data.uniform_(-0.2, 0.2, generator=first)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=3)
    data, skipped = [torch.Generator().manual_seed(rank) for rank in ranks], []
    for step in range(24):
        found = []
        for rank, generator in zip(ranks, data, strict=True):
            loss = model(torch.randn(16, 20, generator=generator) * (1 + 30 * rank)).square().mean()
            found.append(list(torch.autograd.grad(scaler.scale(loss), list(model.parameters()))))
        for parameter, gradient in zip(model.parameters(), mean(found), strict=True):
            parameter.grad = gradient.reshape(parameter.shape).clone()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() < before:
            skipped.append(step)
    return skipped, torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.fault("GradScaler's infinite gradients: the steps are skipped that are skipped without a switch")
def test_a_grad_scaler_skips_the_steps_that_it_skips_without_a_switch() -> None:
    skipped, weights = train_scaled([0, 1], lambda found: [(a + b) / 2 for a, b in zip(*found, strict=True)])
    assert 2 < len(skipped) < 20, "nothing was skipped, or everything: the test tests nothing"

    def rank_main(comm: Communicator) -> tuple[Any, ...]:
        with DDPState(comm, on_nonfinite="skip") as state:

            def mean(found: list[list[torch.Tensor]]) -> list[torch.Tensor]:
                buckets = [Bucket(n, one, one, last=n == len(found[0]) - 1) for n, one in enumerate(found[0])]
                return [future.wait() for future in [state.reduce(bucket) for bucket in buckets]]  # type: ignore[arg-type]

            return *train_scaled([comm.rank], mean), state.skipped_steps

    with LocalGroup(2) as group:
        results = group.run(rank_main)
    assert torch.equal(results[0][1], results[1][1]), "the ranks ended with other weights"
    for found, reached, count in results:
        assert found == skipped and count == len(skipped)
        torch.testing.assert_close(reached, weights, rtol=1e-4, atol=1e-5)
