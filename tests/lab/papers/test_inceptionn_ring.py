"""The ring: the mean in the same bits on all ranks, within the codec's bound, refused by all, and over gloo."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from p4reduce.errors import CollectiveError, NotFiniteError, PeerRefusedError, Reason
from p4reduce_lab.papers.inceptionn import RingState, ring_hook
from p4reduce_lab.papers.inceptionn.codec import Inceptionn
from p4reduce_lab.papers.inceptionn.ring import Hop, mean_over_ring
from rigs.buckets import Bucket
from rigs.limits import LIMIT_S


def values_of(rank: int, elements: int) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(elements).astype(np.float32)


def ring_of(values: list[np.ndarray], codec: Inceptionn) -> list[Any]:
    """What the ranks return or raise, and nothing of it travels: each hop's bytes go to the next rank's generator."""
    world_size = len(values)
    steps = [mean_over_ring(own, rank, world_size, codec, "x") for rank, own in enumerate(values)]
    outcomes: list[Any] = [None] * world_size
    received: list[Any] = [None] * world_size
    while None in [type(outcome) if outcome is not None else None for outcome in outcomes]:
        hops: list[Hop | None] = [None] * world_size
        for rank in range(world_size):
            try:
                hops[rank] = steps[rank].send(received[rank])
            except StopIteration as finished:
                outcomes[rank] = finished.value
            except (NotFiniteError, PeerRefusedError) as error:
                outcomes[rank] = error
        for rank, hop in enumerate(hops):
            if hop is not None:
                following = (rank + 1) % world_size
                expected = hops[following]
                assert expected is not None, "the ranks are out of step"
                assert len(hop.head) == codec.head_bytes(expected.elements)
                assert len(hop.body) == codec.body_bytes(hop.head)
                received[following] = np.concatenate([hop.head, hop.body])
    return outcomes


@pytest.mark.parametrize("elements", [0, 1, 3, 10, 1001])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8])
def test_the_mean_within_the_bound_and_the_same_bits(world_size: int, elements: int) -> None:
    values = [values_of(rank, elements) for rank in range(world_size)]
    given = [own.copy() for own in values]
    for codec in (Inceptionn(2.0**-10), Inceptionn(2.0**-6), Inceptionn(2.0**-8, scale=8.0, rule="published")):
        means = ring_of(values, codec)
        assert all(mean.tobytes() == means[0].tobytes() for mean in means)
        exact = np.mean(np.array(values, np.float64), axis=0)
        bound = codec.bound if codec.rule == "bounded" else 2.0**-7
        scale = 8.0 if codec.scale == 8.0 else 2 * np.abs(values).max(initial=0)
        assert np.abs(means[0] - exact).max(initial=0) <= world_size * bound * scale
        assert all(own.tobytes() == before.tobytes() for own, before in zip(values, given, strict=True))


def test_the_largest_numbers_stay_finite() -> None:
    largest = np.finfo(np.float32).max
    for mean in ring_of([np.full(20, largest, np.float32)] * 3, Inceptionn(2.0**-3)):
        assert np.isfinite(mean).all() and (mean > 0.7 * largest).all()


@pytest.mark.parametrize("world_size", [1, 2, 3, 6])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_ranks_nan_is_refused_by_all_in_the_same_collective(bad: float, world_size: int) -> None:
    values = [values_of(rank, 50) for rank in range(world_size)]
    values[-1][-1] = bad
    *others, own = ring_of(values, Inceptionn())
    assert isinstance(own, NotFiniteError)
    for other in others:
        assert isinstance(other, PeerRefusedError)
        assert other.reasons == {world_size - 1: Reason.NOT_FINITE}


def over_gloo(world_size: int, rank_main: Callable[[dist.ProcessGroup], Any], timeout_s: float = 60.0) -> list[Any]:
    """Run a function on each rank of a process group, all in this process."""
    store = dist.HashStore()

    def run(rank: int) -> Any:
        return rank_main(dist.ProcessGroupGloo(store, rank, world_size, timedelta(seconds=timeout_s)))

    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(run, range(world_size)))


def test_buckets_are_summed_in_a_ring_over_gloo() -> None:
    elements, buckets = 1000, 3

    def rank_main(group: dist.ProcessGroup) -> tuple[bytes, int]:
        state = RingState(Inceptionn(2.0**-8), process_group=group)
        futures = []
        for index in range(buckets):
            gradient = torch.from_numpy(values_of(10 * index + group.rank(), elements)).reshape(20, 50)
            futures.append(ring_hook(state, Bucket(index, gradient, gradient, last=index == buckets - 1)))  # type: ignore[arg-type]
        means = [future.wait().clone() for future in futures]
        state.close()
        return torch.stack(means).numpy().tobytes(), state.bytes_sent

    (first, sent), *others = over_gloo(3, rank_main)
    assert [bits for bits, _ in others] == [first, first]
    for index, mean in enumerate(np.frombuffer(first, np.float32).reshape(buckets, elements)):
        values = [values_of(10 * index + rank, elements) for rank in range(3)]
        assert mean.tobytes() == ring_of(values, Inceptionn(2.0**-8))[0].tobytes()
    assert sent < 4 * elements * buckets * 4 / 3 / 2  # dense: two thirds of a tensor, twice


def test_a_nan_ends_the_state_of_every_rank() -> None:
    def rank_main(group: dist.ProcessGroup) -> BaseException:
        state = RingState(Inceptionn(), process_group=group)
        gradient = torch.full((4, 5), float("nan") if group.rank() == 1 else 1.0)
        with pytest.raises((NotFiniteError, PeerRefusedError)) as caught:
            state.reduce(Bucket(0, gradient, gradient, last=True))  # type: ignore[arg-type]
        assert "this RingState is finished" in caught.value.__notes__[0]
        with pytest.raises(type(caught.value)):
            state.reduce(Bucket(0, gradient, gradient, last=True))  # type: ignore[arg-type]
        state.close()
        return caught.value

    assert [type(error) for error in over_gloo(3, rank_main)] == [PeerRefusedError, NotFiniteError, PeerRefusedError]


def test_a_neighbour_that_does_not_answer_is_waited_for_until_the_deadline() -> None:
    left = threading.Event()

    def rank_main(group: dist.ProcessGroup) -> None:
        state = RingState(Inceptionn(), process_group=group, timeout_s=0.5)
        if group.rank() == 0:
            gradient = torch.ones(100)
            with pytest.raises(CollectiveError, match="the ring broke between rank 0 and rank 1"):
                state.reduce(Bucket(0, gradient, gradient, last=True))  # type: ignore[arg-type]
            left.set()
        assert left.wait(LIMIT_S)
        state.close()

    over_gloo(2, rank_main)


def test_ring_ranks_with_different_settings_get_an_error() -> None:
    def rank_main(group: dist.ProcessGroup) -> None:
        with pytest.raises(CollectiveError, match="do not: give them the same"):
            RingState(Inceptionn(2.0 ** -(8 + group.rank())), process_group=group)

    over_gloo(2, rank_main)


def test_the_hook_trains_with_distributed_data_parallel() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        torch.manual_seed(1)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 3))
        state = RingState(Inceptionn(2.0**-15))
        model.register_comm_hook(state, ring_hook)
        plain = torch.nn.Linear(10, 3)
        plain.load_state_dict(model.module.state_dict())
        inputs = torch.randn(8, 10)
        for net in (model, plain):
            net(inputs).square().mean().backward()
        for own, expected in zip(model.module.parameters(), plain.parameters(), strict=True):
            assert own.grad is not None and expected.grad is not None
            torch.testing.assert_close(own.grad, expected.grad, rtol=0, atol=2.0**-13)
        state.close()
    finally:
        dist.destroy_process_group()
