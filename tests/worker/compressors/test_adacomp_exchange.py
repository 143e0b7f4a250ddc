"""AdaComp over collectives: N ranks, one shared scale, one collective a step."""

import math

import pytest
import torch
from worker.local_group import LocalGroup

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp
from p4reduce.compressors.exchange import all_reduce_compressed
from p4reduce.errors import InvalidTensor

SHAPES = {"conv.weight": (6, 3, 3, 3), "conv.bias": (6,), "fc.weight": (10, 120), "fc.bias": (10,)}


def gradients_of(rank: int, step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("world_size", [1, 2, 4, 9])
def test_means_follow_the_shared_scales(world_size: int) -> None:
    steps = 5
    compressors = [AdaComp() for _ in range(world_size)]

    def rank_main(comm: Communicator) -> list[dict[str, torch.Tensor]]:
        mine = compressors[comm.rank]
        return [all_reduce_compressed(comm, mine, gradients_of(comm.rank, step)) for step in range(steps)]

    with LocalGroup(world_size) as group:
        means = group.run(rank_main)
        collectives = {comm.stats.collectives for comm in group.comms}
    assert collectives == {steps + 1}  # one a step, and one for the first scales

    models = [AdaComp() for _ in range(world_size)]  # the same without a network
    ranks = range(world_size)
    scales: dict[str, float] = {}
    for step in range(steps):
        gradients = [gradients_of(rank, step) for rank in ranks]
        for name, shape in SHAPES.items():
            parts = [one[name] for one in gradients]
            for rank in ranks:  # identical bits on all ranks
                assert torch.equal(means[rank][step][name], means[0][step][name])
            if len(shape) < 2:
                torch.testing.assert_close(means[0][step][name], torch.stack(parts).mean(0), rtol=1e-6, atol=1e-7)
                continue
            if step == 0:
                scales[name] = sum(models[r].local_scale(name, parts[r]) for r in ranks) / world_size
            outs = [models[r].compress(name, parts[r], scales[name]) for r in ranks]
            sent = torch.stack([out.signs.float() * scales[name] for out in outs]).mean(0)
            torch.testing.assert_close(means[0][step][name].flatten(), sent, rtol=1e-5, atol=1e-7)
            scales[name] = sum(out.local_scale for out in outs) / world_size
    for name, scale in scales.items():
        for compressor in compressors:
            assert compressor.shared_scale(name) == compressors[0].shared_scale(name)
            assert compressor.shared_scale(name) == pytest.approx(scale, rel=1e-5)


def test_nothing_is_lost_over_many_steps() -> None:
    """Sum over steps and ranks of what was given = N * (sum of the means) + the ranks' residues."""
    world_size, steps = 3, 40
    compressors = [AdaComp() for _ in range(world_size)]

    def rank_main(comm: Communicator) -> torch.Tensor:
        mine = compressors[comm.rank]
        total = torch.zeros(SHAPES["fc.weight"], dtype=torch.float64)
        for step in range(steps):
            total += all_reduce_compressed(comm, mine, gradients_of(comm.rank, step))["fc.weight"]
        return total

    with LocalGroup(world_size) as group:
        received = group.run(rank_main)[0] * world_size
    given = sum(gradients_of(r, s)["fc.weight"].double() for r in range(world_size) for s in range(steps))
    kept = [compressor.residue("fc.weight") for compressor in compressors]
    left = sum(residue.double() for residue in kept if residue is not None)
    torch.testing.assert_close(received + left.view(SHAPES["fc.weight"]), given, rtol=0, atol=1e-3)


def test_it_costs_a_fraction_of_the_dense_gradient() -> None:
    def rank_main(comm: Communicator) -> tuple[int, int]:
        gradient = torch.randn(40, 500, generator=torch.Generator().manual_seed(comm.rank))
        adacomp = AdaComp()
        all_reduce_compressed(comm, adacomp, {"w": gradient})
        before = comm.stats.bytes_up
        all_reduce_compressed(comm, adacomp, {"w": gradient})
        sparse = comm.stats.bytes_up - before
        comm.all_reduce(gradient)
        return sparse, comm.stats.bytes_up - before - sparse

    with LocalGroup(4) as group:
        for sparse, dense in group.run(rank_main):
            assert dense > 5 * sparse  # 8 lanes a word


@pytest.mark.parametrize("names", [["conv.bias"], ["fc.weight"]])
def test_only_dense_or_only_compressed_parameters(names: list[str]) -> None:
    def rank_main(comm: Communicator) -> dict[str, torch.Tensor]:
        gradients = gradients_of(comm.rank, 0)
        return all_reduce_compressed(comm, AdaComp(), {name: gradients[name] for name in names})

    with LocalGroup(2) as group:
        for means in group.run(rank_main):
            assert [(name, tuple(mean.shape)) for name, mean in means.items()] == [(names[0], SHAPES[names[0]])]


def test_zero_gradients_and_empty_parameters() -> None:
    def rank_main(comm: Communicator) -> list[dict[str, torch.Tensor]]:
        adacomp, zero = AdaComp(), {"w": torch.zeros(5, 60), "empty": torch.zeros(0, 4), "b": torch.zeros(5)}
        return [all_reduce_compressed(comm, adacomp, zero) for _ in range(3)]

    with LocalGroup(2) as group:
        for steps in group.run(rank_main):
            for means in steps:
                assert all(not mean.any() for mean in means.values())
                assert math.prod(means["empty"].shape) == 0


def test_means_of_large_gradients_are_finite() -> None:
    def rank_main(comm: Communicator) -> dict[str, torch.Tensor]:
        gradients = {"w": torch.full((2, 60), 2e38), "b": torch.full((5,), -2e38)}
        return all_reduce_compressed(comm, AdaComp(), gradients)

    with LocalGroup(2) as group:
        for means in group.run(rank_main):
            torch.testing.assert_close(means["w"].max(), torch.tensor(2e38))
            torch.testing.assert_close(means["b"], torch.full((5,), -2e38))


def test_nan_is_refused_before_anything_is_sent() -> None:
    def rank_main(comm: Communicator) -> int:
        gradients = gradients_of(comm.rank, 0)
        gradients["fc.weight"][3, 4] = float("nan")
        with pytest.raises(InvalidTensor, match=r"fc\.weight"):
            all_reduce_compressed(comm, AdaComp(), gradients)
        return comm.stats.frames_up

    with LocalGroup(2) as group:
        assert group.run(rank_main) == [0, 0]
