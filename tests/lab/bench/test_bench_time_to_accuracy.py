"""Time to accuracy: the target, what is taken of trainings that reach it or do not, and each rank's share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from p4reduce_lab import datasets
from p4reduce_lab.bench.case import Run
from p4reduce_lab.bench.cases import time_to_accuracy as case
from p4reduce_lab.bench.links import VETH, Link
from p4reduce_lab.processes import Children
from p4reduce_lab.study import train
from p4reduce_lab.study.grid import TASKS, TRANSFORMER

CELL = replace(case.CELLS[0], tests=6, settings={"steps": 12})
RATES = {"gloo": 4.0, "gloo fp16": 2.0, "p4reduce dense": 3.0, "p4reduce 16": 1.5, "p4reduce 8": 1.0}
"""Seconds of a step; of the other variants a quarter."""


class FakeCluster:
    """Trainings whose accuracy at each test is read from a table, on every rank."""

    def __init__(self, run: Run, scores: dict[str, list[float]]) -> None:
        self.run, self.link, self.network = run, VETH, self
        self._scores = scores
        self.begun: list[tuple[str, int]] = []

    def shape(self, link: Link) -> None:
        self.link = link

    def carried(self) -> list[tuple[int, int]]:
        return [(0, 1000 * self._steps), (0, 3000 * self._steps)]

    def ask(self, do: str, **given: Any) -> list[dict[str, float]]:
        if do == "begin_training":
            self.begun.append((given["peer"], given["seed"]))
            self._variant, self._seed, self._steps = given["peer"], given["seed"], 0
            return []
        scores = self._scores.get(f"{self._variant} of seed {self._seed}") or self._scores.get(self._variant)
        score = (scores or self._scores[""])[self._steps // 2 - 1]
        return [{"quality": score - 1}, {"quality": score + 1}]  # of two ranks

    def timed(self, do: str, steps: int, peer: str) -> float:
        assert peer == self._variant
        self._steps += steps
        limited = self.link.rate_mbit is not None
        return steps * (RATES.get(self._variant, 0.25) if limited else 0.1 if self._variant == case.ALONE else 0.2)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Measure the cell with these scores by variant, "" for all others; return its cluster and the run."""

    def measure(cell: case.Cell = CELL, **scores: list[float]) -> tuple[FakeCluster, Run]:
        run = Run(False, tmp_path / "cases/logs", Children(tmp_path), networks=True)
        cluster = FakeCluster(run, {name.replace("_", " ").strip(): of_tests for name, of_tests in scores.items()})

        @contextmanager
        def running(*_: Any, **__: Any) -> Iterator[FakeCluster]:
            yield cluster

        monkeypatch.setattr(case, "running_cluster", running)
        case.measure(cell, run)
        return cluster, run

    return measure


UP = [50.0, 90.0, 97.5, 97.7, 97.9, 97.8]
"""Accuracy of gloo in float32: the target is 97.6."""


def test_all_variants_train_to_the_same_target_with_the_setting_that_is_quickest_for_the_first_seed(
    measured: Any,
) -> None:
    late = [50.0, 60.0, 70.0, 97.5, 97.6, 97.7]
    cluster, run = measured(_=UP, **{f"p4reduce_AdaComp_{bins}": late for bins in (50, 100, 200)}, gloo_PowerSGD_1=late)
    assert run.findings.notes == [
        f"{CELL.title}: gloo ends with 97.80 %, 97.80 %, 97.80 % after 12 steps; the target is 97.60 %, which it "
        "reaches after 8, 8, 8"
    ]
    series = {str(one.at["variant"]): one for one in run.findings.series}
    assert {name: one.values for name, one in series.items()} == {
        **{name: [8 * seconds] * 3 for name, seconds in RATES.items()},
        case.POWERSGD: [2.0] * 3,
        case.AUTO: [2.0] * 3,
        case.ADACOMP: [2.5] * 3,
    }
    assert series[case.POWERSGD].peer == "gloo PowerSGD 2"
    tuned = [("gloo PowerSGD 1", 0), ("gloo PowerSGD 2", 0), ("gloo PowerSGD 4", 0)]
    tuned += [("gloo PowerSGD 2", 1), ("gloo PowerSGD 2", 2)]
    assert [each for each in cluster.begun if "PowerSGD" in each[0] and each[1] in case.SEEDS] == tuned
    parts = {"s computing": 0.8, "s hook and protocol": 0.8, "s more on these links": 30.4}
    assert series["gloo"].counted == pytest.approx(
        {case.REACHED: 3, case.STEPS: 8, **parts, "kB down a link and step": 2.0}
    )
    assert run.findings.ratios == {CELL.time_threshold.name: 16 / 2.5, CELL.steps_threshold.name: 8 / 10}
    assert run.findings.curves["gloo"][2] == [(8.0, 50.0), (16.0, 90.0), (24.0, 97.5), (32.0, 97.7)]


@pytest.mark.parametrize(("tuned_on", "of_first_seed", "chosen"), [(1, 1.0, 2), (2, 2.5, 1)])
def test_a_setting_is_the_one_that_takes_all_seeds_it_is_tuned_on_to_the_target_in_the_least_seconds(
    measured: Any, tuned_on: int, of_first_seed: float, chosen: int
) -> None:
    late, never = [50.0, 60.0, 70.0, 97.5, 97.6, 97.7], [50.0] * 6
    early = [50.0, 97.7, *UP[2:]]
    scores = {"gloo_PowerSGD_1": late, "gloo_PowerSGD_2_of_seed_0": early, "gloo_PowerSGD_2_of_seed_1": never}
    cluster, run = measured(replace(CELL, tuned_on=tuned_on), _=UP, gloo_PowerSGD_4=never, **scores)
    (series,) = (one for one in run.findings.series if one.at["variant"] == case.POWERSGD)
    assert series.peer == f"gloo PowerSGD {chosen}" and series.values[0] == of_first_seed
    tried = [seed for peer, seed in cluster.begun if peer == "gloo PowerSGD 4" and seed in case.SEEDS]
    assert tried == list(case.SEEDS[:tuned_on])


def test_a_variant_that_does_not_reach_the_target_is_shown_and_has_no_ratio(measured: Any, tmp_path: Path) -> None:
    low = [50.0, 60.0, 70.0, 80.0, 90.0, 97.59]
    _, run = measured(_=UP, **{f"p4reduce_AdaComp_{bins}": low for bins in (50, 100, 200)})
    assert run.findings.ratios == {} and list(run.findings.skipped) == [CELL.title]
    (table, picture) = case.write(tmp_path, {CELL.name: run.findings})
    rows = [line.split(" | ") for line in table.read_text().splitlines() if line.startswith("|")]
    assert rows[2][1:3] == ["32 (32 to 32)", "16 (16 to 16)"] and rows[2][-2] == "not in 3"
    assert rows[-1][:3] == ["| p4reduce AdaComp 50", "not in 3", "12"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_loss_is_to_fall_to_half_a_percent_more_than_dense_s() -> None:
    target = case.Target(True, [case.Training(tests=[(1.0, 9.0), (2.0, loss)]) for loss in (2.0, 3.0, 2.2)])
    assert target.quality == pytest.approx(2.211) and str(target) == "2.2110 nats"
    assert [target.reached(loss) for loss in (2.2, 2.22)] == [True, False]


def test_the_ranks_share_out_each_step_s_batch_and_the_test_data(
    monkeypatch: pytest.MonkeyPatch, images: datasets.Images, tmp_path: Path
) -> None:
    from p4reduce_lab.bench.models import of_study

    text = torch.randint(0, 9, (900,), generator=torch.Generator().manual_seed(3))
    monkeypatch.setattr(datasets, "mnist", lambda _: images)
    monkeypatch.setattr(datasets, "shakespeare", lambda _: datasets.Text(text, text[:516], "abcdefgh "))
    for name, settings in (("mnist-mlp", {"batch": 8}), (TRANSFORMER, {"batch": 8, "context": 8, "layers": 1})):
        task = replace(TASKS[name], **settings)
        ranks = [of_study(rank, 4, task=name, seed=1, data=str(tmp_path), settings=settings) for rank in range(4)]
        run = train.Run(name, 4, "sgd", "dense", 1)
        torch.manual_seed(1)
        batches, test, alphabet = train.data_of(task, run, tmp_path)
        model = train.make_model(task, alphabet)
        assert all(map(torch.equal, model.parameters(), ranks[3].model.parameters()))
        assert all(
            torch.equal(next(own.batches)[0], batch) for own, (batch, _) in zip(ranks, next(batches), strict=True)
        )
        shares = [own.quality(model) for own in ranks]
        assert len(set(shares)) > 1 and sum(shares) / 4 == pytest.approx(test(model, None), rel=0.02)
