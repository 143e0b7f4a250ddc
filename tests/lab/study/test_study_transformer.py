"""The transformer's trainings: the model, the optimizers, torch's hooks, records and tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from p4reduce_lab.study import data, hooks, transformer, transformer_report
from p4reduce_lab.study.grid import (
    TASKS,
    TRANSFORMER,
    TRANSFORMER_TRIED,
    TRANSFORMER_VARIANTS,
    LanguageTask,
    Run,
    runs,
)
from p4reduce_lab.study.results import is_current
from p4reduce_lab.study.rounded import ROUNDED
from p4reduce_lab.study.second_moment import SecondMomentAdamW
from p4reduce_lab.study.transformer import RECIPES, limit_norm, norm_of, rate_at
from rigs.study_records import record
from rigs.torch_threads import one_thread  # noqa: F401 (a fixture)

pytestmark = pytest.mark.slow

LETTERS = "abcdefgh "
STEPS = 5


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> LanguageTask:
    """Five steps of a small model."""
    large = TASKS[TRANSFORMER]
    assert isinstance(large, LanguageTask)
    small = replace(large, steps=STEPS, batch=8, context=8, layers=1, width=16, heads=2, warmup=2)
    monkeypatch.setitem(TASKS, TRANSFORMER, small)
    monkeypatch.setattr(transformer, "TEST_CHARACTERS", 200)
    return small


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A folder with made-up plays."""
    drawn = np.random.default_rng(3).integers(0, len(LETTERS), 900).astype(np.uint8)
    path = tmp_path / f"shakespeare-{data.FORMAT}.npz"
    np.savez(path, train=drawn, test=drawn[:301], alphabet=np.array(LETTERS))
    return tmp_path


def run_of(variant: str, optimizer: str = "adamw", seed: int = 1) -> Run:
    return Run(TRANSFORMER, 4, optimizer, variant, seed)


def trained(run: Run, cache: Path) -> dict[str, Any]:
    return transformer.train(run, cache, None, lambda step, steps: None)


def test_a_character_is_predicted_from_those_before_it(task: LanguageTask) -> None:
    model = transformer.make_model(task, len(LETTERS))
    signs = torch.randint(0, len(LETTERS), (3, task.context), generator=torch.Generator().manual_seed(0))
    other = signs.clone()
    other[:, 5:] = (other[:, 5:] + 1) % len(LETTERS)
    one, two = (model(given).view(3, task.context, -1) for given in (signs, other))
    assert torch.equal(one[:, :5], two[:, :5]) and not torch.allclose(one[:, 5:], two[:, 5:])
    expected = 12 * task.layers * task.width**2 + (2 * len(LETTERS) + task.context) * task.width
    norms = (2 * task.layers + 1) * 2 * task.width
    assert sum(parameter.numel() for parameter in model.parameters()) == expected + norms


def test_every_variant_of_the_grid_is_known() -> None:
    known = {*RECIPES, *ROUNDED, *hooks.HOOKS}
    of_grid = {run.variant for run in runs() if run.model == TRANSFORMER}
    assert {*TRANSFORMER_VARIANTS, *TRANSFORMER_TRIED} <= of_grid <= known
    assert {*RECIPES} <= of_grid


@pytest.mark.parametrize("variant", ["dense", "adacomp-gather", "adacomp-momentum", "adacomp-frozen", "wire-16"])
def test_the_record_of_a_training(variant: str, cache: Path) -> None:
    found = trained(run_of(variant), cache)
    assert is_current(found) and found["id"] == run_of(variant).id and found["diverged_at"] is None
    assert 1 < found["loss"] < 4 and [step for step, _ in found["train_loss"]] == list(range(STEPS))
    assert [step for step, _ in found["test_loss"]] == list(range(STEPS - 1))
    assert (found["residue_norm"][-1][1] > 0) == (variant in ("adacomp-gather", "adacomp-momentum"))
    assert {**trained(run_of(variant), cache), "seconds": 0} == {**found, "seconds": 0}


def test_frozen_and_dense_are_alike_before_the_second_moment_is_frozen(cache: Path) -> None:
    dense, frozen = (trained(run_of(variant), cache) for variant in ("dense-clip-ranks", "dense-frozen"))
    assert dense["loss"] == pytest.approx(frozen["loss"], abs=1e-3)


def step_alone(optimizer: torch.optim.Optimizer, parameter: torch.Tensor, gradients: list[torch.Tensor]) -> None:
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()


def gradients(count: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(4, 5, generator=draw) for _ in range(count)]


def test_the_own_optimizer_is_torchs_adamw_where_nothing_is_changed() -> None:
    one, other = torch.ones(4, 5), torch.ones(4, 5)
    params = {"weight_decay": 0.1}
    step_alone(SecondMomentAdamW([{"params": [one], **params}], 0.01, (0.9, 0.99)), one, gradients(20))
    step_alone(torch.optim.AdamW([{"params": [other], **params}], 0.01, (0.9, 0.99)), other, gradients(20))
    torch.testing.assert_close(one, other)


def test_a_frozen_second_moment_makes_the_steps_linear() -> None:
    """Half of a gradient in each of two steps moves a parameter as far in the end as the whole of it in one."""
    ends = []
    for parts in ([1.0, 0.0], [0.5, 0.5]):
        parameter = torch.zeros(4, 5)
        optimizer = SecondMomentAdamW([parameter], 0.01, (0.0, 0.99), freeze_after=10)
        step_alone(optimizer, parameter, gradients(10))
        step_alone(optimizer, parameter, [part * torch.full((4, 5), 3.0) for part in parts])
        ends.append(parameter)
    torch.testing.assert_close(*ends)


def test_one_second_moment_for_a_tensor_keeps_the_gradients_direction() -> None:
    parameter, gradient = torch.zeros(4, 5), gradients(1)[0]
    step_alone(SecondMomentAdamW([parameter], 0.01, (0.0, 0.99), of_tensor=True), parameter, [gradient])
    torch.testing.assert_close(parameter, -0.01 * gradient / gradient.square().mean().sqrt())


def test_the_norm_is_limited_and_the_rate_rises_and_falls(task: LanguageTask) -> None:
    tensors = [torch.full((3,), 2.0), torch.full((1,), 2.0)]
    limit_norm(tensors, 1.0)
    assert norm_of(tensors) == pytest.approx(1.0)
    limit_norm(tensors, 2.0)
    assert norm_of(tensors) == pytest.approx(1.0)
    rates = [rate_at(step, task) for step in range(STEPS)]
    assert rates[:3] == [0.5, 1.0, 1.0] and rates[3:] == sorted(rates[3:], reverse=True)
    assert rate_at(STEPS, task) == pytest.approx(0.1)


@pytest.mark.processes
def test_torchs_hooks_train_as_dense_does(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fp16 nearly, and gloo's own sum like ours, with two ranks."""
    dense = transformer.train(Run(TRANSFORMER, 2, "adamw", "dense", 0), cache, None, lambda step, steps: None)
    bytes_down = {}
    for variant in ("gloo-dense", "gloo-fp16"):
        found = hooks.train(Run(TRANSFORMER, 2, "adamw", variant, 0), cache)
        assert is_current(found) and found["parameters"] == dense["parameters"]
        assert found["train_loss"][0][1] > 1
        bytes_down[variant] = found["gloo"][1]
    assert bytes_down["gloo-fp16"] < 0.8 * bytes_down["gloo-dense"]


def test_the_tables(tmp_path: Path) -> None:
    measured = [
        {"peer": "p4reduce dense", "link": f"{link} (tbf)", "values": [100.0, 300.0, 200.0]}
        for link in transformer_report.LINKS
    ]
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"cases": {"transformer": {"series": measured}}}), encoding="utf-8")
    transformer_report.keep_step_times(results, tmp_path)
    times = transformer_report.step_times(tmp_path)
    assert times["1 Gbit/s"] == {"p4reduce dense": 0.2}
    assert transformer_report.step_times(tmp_path / "nothing") == {}

    sent = [{"step": step, "bytes_down": down} for step, down in ((0, 1000.0), (4, 100.0))]
    records = [
        record(run_of("dense", seed=0), 2.0, down=1000.0, test_loss=[[1, 3.0]]),
        record(run_of("dense", seed=1), 4.0, down=1000.0, test_loss=[[1, 3.0]]),
        record(run_of("adacomp-gather", seed=0), 2.2, down=100.0, rates={"all": 30.0}, test_loss=[[1, 3.5]]),
        *[
            {**record(run_of("gloo-fp16", seed=seed), loss), "gloo": [700, 500], "residue_norm": []}
            for seed, loss in ((0, 2.0), (2, 9.0))
        ],
        {**record(run_of("gloo-powersgd", seed=2), 9.0), "gloo": [700, 500], "residue_norm": []},
        {**record(run_of("adacomp-frozen", seed=0), 2.1), "switch": sent},
        record(run_of("dense-frozen", seed=0), 2.0),
    ]
    rows = {row[0]: row[1:] for row in transformer_report.results_table(records, times).rows}
    assert rows["dense"] == ["3.0000 (2.0000 to 4.0000), 2 seeds", "", "", "1,000", "1.0x", "200", "200", "1", "1"]
    assert rows["adacomp-gather"][1:5] == ["+10.0%", "30x", "100", "10.0x"]
    assert rows["gloo-fp16"][1:5] == ["+0.0%", "", "500", "2.0x"], "there is no dense of its other seed"
    assert rows["gloo-powersgd"][1] == ""
    progress = transformer_report.progress_table(records)
    assert progress.headings == ["variant", "step 2", f"step {STEPS}"]
    assert progress.rows[1] == ["adacomp-gather", "3.500", "2.200"]
    tried = {row[1]: row for row in transformer_report.tried_table(records).rows}
    assert tried["adacomp-frozen"][3:5] == ["+5.0%", "dense-frozen"] and tried["dense-frozen"][3:5] == [
        "+0.0%",
        "dense",
    ]
    transformer_report.draw(records, tmp_path)
    assert (tmp_path / "study-transformer.png").stat().st_size > 1000
