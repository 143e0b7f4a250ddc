"""LGC's parts on values that can be worked out, and a training of a few steps on random images."""

from __future__ import annotations

import pytest
import torch

from p4reduce_lab.datasets import Images
from p4reduce_lab.papers import lgc
from p4reduce_lab.papers.lgc import VARIANTS, Autoencoder, Settings, Training

TINY = Settings(batch=16, dense_steps=2, autoencoder_steps=2, compressed_steps=3)


@pytest.fixture
def coder() -> Autoencoder:
    torch.manual_seed(0)
    return Autoencoder()


def given(ranks: int = 4, k: int = 64) -> torch.Tensor:
    return 1e-3 * torch.randn(ranks, k, generator=torch.Generator().manual_seed(7))


def test_plain_values_are_exact_rounded_or_signs(coder: Autoencoder) -> None:
    values = given()
    exact, rounded, signs = (VARIANTS[variant][0](values, 0, coder) for variant in ("exact values", "8 bits", "signs"))
    assert torch.equal(exact.own, values) and torch.equal(exact.mean, values.mean(0))
    unit = values.abs().max() / 127
    assert (rounded.own - values).abs().max() <= unit / 2 * 1.001
    assert len(rounded.own.unique()) <= 255
    assert torch.equal(signs.own.sign(), values.sign()) and len(signs.own[0].abs().unique()) == 1
    torch.testing.assert_close(signs.own.abs().sum(1), values.abs().sum(1))


def test_the_ring_decodes_the_mean_of_codes_in_the_values_own_scale(coder: Autoencoder) -> None:
    values = given()
    with torch.no_grad():
        kept = VARIANTS["LGC ring, residue kept"][0](values, 0, coder)
        cleared = VARIANTS["LGC ring, residue cleared"][0](values, 0, coder)
        larger = VARIANTS["LGC ring, residue kept"][0](1000 * values, 0, coder)
        same = VARIANTS["LGC ring, residue kept"][0](values[:1].expand(4, -1), 0, coder)
    assert torch.equal(kept.mean, cleared.mean) and torch.equal(cleared.own, values)
    torch.testing.assert_close(larger.mean, 1000 * kept.mean)
    torch.testing.assert_close(same.mean, same.own[0])  # equal ranks: the mean of codes is each one's


def test_the_server_has_one_code_and_each_ranks_largest_values(coder: Autoencoder) -> None:
    values = given()
    innovation = lgc.innovation_of(values)
    assert (innovation != 0).sum(1).tolist() == [6] * 4
    assert innovation.abs().amax(1).tolist() == values.abs().amax(1).tolist()
    with torch.no_grad():
        first, second = (VARIANTS["LGC server, residue kept"][0](values, leader, coder) for leader in (0, 1))
    assert not torch.equal(first.mean, second.mean)
    torch.testing.assert_close(first.own.mean(0), first.mean)


def test_an_autoencoder_learns_what_the_ranks_have_in_common(coder: Autoencoder) -> None:
    optimizer = torch.optim.Adam(coder.parameters(), 0.003)
    wave = torch.sin(torch.arange(64) / 5).expand(4, -1)
    losses = [lgc.train_autoencoder(coder, optimizer, wave, 0, "ring") for _ in range(60)]
    assert losses[-1] < losses[0] / 4


def test_a_sparse_step_moves_chosen_weights_only_and_keeps_the_rest(images: Images, coder: Autoencoder) -> None:
    training = Training(0, TINY)
    before = [p.detach().clone() for p in training.model.parameters()]
    parts = list(zip(images.x_train[:16].chunk(4), images.y_train[:16].chunk(4), strict=True))
    gradients = training.gradients(parts)
    values, error = training.sparse_step(parts, VARIANTS["exact values"][0], coder)
    assert error == 0.0 and values.shape == (4, training.chosen) and training.chosen % 16 == 0
    pairs = zip(before, training.model.parameters(), strict=True)
    moved = torch.cat([(b - p.detach()).flatten() for b, p in pairs])
    assert 0 < int((moved != 0).sum()) <= training.chosen
    sent = gradients - training.residues
    assert torch.equal(sent.any(0), (training.residues == 0).all(0) & gradients.any(0))
    torch.testing.assert_close(moved, TINY.lr * sent.mean(0), atol=1e-7, rtol=1e-4)


def test_all_variants_of_a_seed_are_recorded_and_start_from_equal_weights(images: Images) -> None:
    records = list(lgc.run(1, images, TINY))
    assert [record["variant"] for record in records] == [lgc.DENSE, *VARIANTS]
    assert all(0 <= record["accuracy"] <= 100 for record in records)
    errors = {record["variant"]: record["error"] for record in records}
    assert errors[lgc.DENSE] is None and errors["exact values"] == 0 < errors["8 bits"] < errors["signs"]
    assert list(lgc.run(1, images, TINY)) == records
