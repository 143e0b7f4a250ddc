"""The study's ring in one process: the bits and bytes of the real schedule, and numbers cut to 16 bits."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
import torch

from p4reduce.codecs.inceptionn import Inceptionn
from p4reduce.ring.schedule import Hop, mean_over_ring
from p4reduce_lab.study.ring import RINGS, Ring, cut, mean_in_process


def by_the_schedule(values: list[np.ndarray], codec: Inceptionn) -> tuple[list[bytes], int]:
    """The means of all ranks, each hop's bytes given to the next rank's generator, and the bytes sent."""
    ranks: list[Generator[Hop, Any, Any]] = [
        mean_over_ring(own, rank, len(values), codec, "x") for rank, own in enumerate(values)
    ]
    received: list[Any] = [None] * len(ranks)
    sent = 0
    for _ in range(2 * (len(ranks) - 1)):
        hops = [steps.send(data) for steps, data in zip(ranks, received, strict=True)]
        data = [np.concatenate([hop.head, hop.body]) for hop in hops]
        sent += sum(map(len, data))
        received = data[-1:] + data[:-1]
    means = []
    for steps, last in zip(ranks, received, strict=True):
        with pytest.raises(StopIteration) as finished:
            steps.send(last)
        means.append(finished.value.value.tobytes())
    return means, sent


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize(
    "codec", [variant.codec for variant in RINGS.values() if variant.codec], ids=lambda codec: codec.settings
)
def test_the_bits_and_bytes_of_the_schedule(codec: Inceptionn, world_size: int) -> None:
    numbers = np.random.default_rng(world_size)
    values = [numbers.standard_cauchy(1003).astype(np.float32) for _ in range(world_size)]
    values[0][5] = np.finfo(np.float32).max
    mean, sent = mean_in_process(values, codec)
    expected, expected_sent = by_the_schedule(values, codec)
    assert [mean.tobytes()] * world_size == expected
    assert sent == expected_sent


def test_truncation_keeps_the_upper_16_bits_and_rounds_towards_zero() -> None:
    given = np.array([1.0, -1.0, 1.00781, -1.00781, 0.0, 1e-30, 3e38, np.pi], np.float32)
    found = cut(given)
    assert found.tolist()[:5] == [1.0, -1.0, 1.0, -1.0, 0.0]  # 1 + 2^-7 is the next one up
    assert not (found.view(np.uint32) & 0xFFFF).any()
    assert (np.abs(found) <= np.abs(given)).all() and (np.abs(found - given) <= 2.0**-7 * np.abs(given)).all()


def gradients(world_size: int) -> list[dict[str, torch.Tensor]]:
    numbers = torch.Generator().manual_seed(0)
    return [
        {"weight": torch.randn(8, 4, generator=numbers), "bias": torch.randn(8, generator=numbers)}
        for _ in range(world_size)
    ]


def test_dense_is_the_mean_by_name_and_shape() -> None:
    given = gradients(4)
    ring = Ring(RINGS["ring-dense"], 4)
    means = ring.mean(given)
    for name, mean in means.items():
        torch.testing.assert_close(mean, torch.stack([own[name] for own in given]).mean(0))
    assert ring.counted() == {"bytes_a_step": 240, "dense_bytes_a_step": 240, "zeros": 0.0}  # 40 numbers, 3/4, twice


def test_a_fixed_scale_far_above_the_numbers_leaves_only_zeros() -> None:
    given = [{name: 1e-4 * own for name, own in of_rank.items()} for of_rank in gradients(4)]
    counted = {}
    for variant in ("ring-absolute-10", "ring-published-10"):
        ring = Ring(RINGS[variant], 4)
        ring.mean(given)
        counted[variant] = ring.counted()
    assert counted["ring-absolute-10"]["zeros"] == 1.0
    assert counted["ring-published-10"]["zeros"] < 0.2
    assert counted["ring-absolute-10"]["bytes_a_step"] < counted["ring-published-10"]["bytes_a_step"] < 240


def test_only_gradients_or_weights_as_named_are_truncated() -> None:
    given = gradients(2)
    weights = {"weight": torch.full((2, 2), np.pi)}
    by_gradients, by_weights = (Ring(RINGS[f"ring-{which}-16"], 2) for which in ("gradients", "weights"))
    exact = Ring(RINGS["ring-dense"], 2).mean(given)
    assert torch.equal(by_weights.mean(given)["weight"], exact["weight"])
    assert not torch.equal(by_gradients.mean(given)["weight"], exact["weight"])
    by_gradients.after_step(weights)
    assert torch.equal(weights["weight"], torch.full((2, 2), np.pi))
    by_weights.after_step(weights)
    assert weights["weight"].unique().tolist() == [3.140625]
    assert by_gradients.counted()["bytes_a_step"] == by_gradients.counted()["dense_bytes_a_step"] / 2
