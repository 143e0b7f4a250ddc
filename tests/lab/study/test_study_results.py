"""The study's results: which count, how they are kept, what the tables say, and which runs are still missing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import p4reduce_lab.study.__main__ as command
from p4reduce_controller.registry.job import check_name
from p4reduce_lab.datasets import DataError
from p4reduce_lab.study import report
from p4reduce_lab.study.grid import GROUPS, TASKS, VARIANTS, Run, runs
from p4reduce_lab.study.results import is_current, read

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[3] / "docs"
MLP = "mnist-mlp"


Record = dict[str, Any]


def record(run: Run, result: float | None, *, down: float = 1000.0, **others: Any) -> Record:
    """Return the record of a run with this accuracy or loss (None: it diverged); two of its steps took the switch."""
    task = TASKS[run.model]
    steps = [{"step": step, "bytes_up": down / 2, "bytes_down": down, "frames_again": 0} for step in (60, 70)]
    return {
        "id": run.id,
        **vars(run),
        "settings": task.settings,
        task.measure: result,
        "diverged_at": 3 if result is None else None,
        "train_loss": [[0, 4.0], [50, 3.0]],
        "residue_norm": [[0, 1.0], [50, 2.0], [100, 3.0]],
        "rates": {},
        "switch": steps if run.seed == 0 else [],
        "seconds": 1.0,
        **others,
    }


def put(folder: Path, *records: Record) -> None:
    """Each as the file of a finished run."""
    folder.mkdir(exist_ok=True)
    for one in records:
        (folder / f"{one['id']}.json").write_text(json.dumps(one), encoding="utf-8")


def of(variant: str, seed: int = 0, *, model: str = MLP, workers: int = 4, optimizer: str = "sgd") -> Run:
    return Run(model, workers, optimizer, variant, seed)


def rows(table: Any) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in table.rows}


def test_every_variant_is_trained_and_every_group_is_of_variants() -> None:
    assert {run.variant for run in runs()} == set(VARIANTS) == {name for group in GROUPS.values() for name in group}


def test_every_run_has_a_job_of_its_own() -> None:
    names = [run.job for run in runs()]
    assert len(names) == len({*names})
    for name in names:
        check_name(name)


def test_finished_runs_are_read_in_the_order_of_the_grid(tmp_path: Path) -> None:
    some = list(runs())[::7]
    put(tmp_path, *(record(run, 50.0) for run in reversed(some)))
    assert [one["id"] for one in read(tmp_path)] == [run.id for run in some]


def test_other_settings_and_runs_that_are_not_of_the_grid_do_not_count(tmp_path: Path) -> None:
    good = record(of("dense"), 98.0)
    older = record(of("scalecom"), 97.0)
    older["settings"]["steps"] += 1
    unknown = record(of("top-secret"), 97.0)
    removed = {**record(of("dense", 1), 97.0), "model": "resnet", "id": "resnet-4-sgd-dense-1"}
    put(tmp_path, good, older, unknown, removed)
    (tmp_path / "mnist-mlp-4-sgd-adacomp-auto-0.partial").write_text("{", encoding="utf-8")
    assert read(tmp_path) == [good]
    assert not is_current(older) and not is_current(removed) and is_current(good)


def test_the_figures_of_the_study_s_page_are_those_of_the_kept_records(tmp_path: Path) -> None:
    page = report.page(read(tmp_path / "none", DOCS / "study.json"))
    results = (DOCS / "study.md").read_text(encoding="utf-8").partition("## Results with SGD")[2].partition("\n* ")[0]
    differences = re.findall(r"[+-]\d+\.\d+ (?:points|%)", results)
    assert len(differences) == 14 and all(f"| {difference.replace(' %', '%')} |" in page for difference in differences)


def test_a_compressor_is_compared_with_the_dense_runs_of_its_model(tmp_path: Path) -> None:
    dense, adacomp = record(of("dense"), 98.0, down=8000.0), record(of("adacomp-gather"), 97.0, down=100.0)
    seeds = [record(of("scalecom", seed), value) for seed, value in enumerate([97.0, None, 98.0])]
    adacomp["rates"] = {"all": 200.0}
    found = rows(report.tables([dense, adacomp, record(of("adacomp-sum"), None), *seeds])["MNIST MLP"])
    assert found["scalecom"][0] == "97.50 (97.00 to 98.00), 1 diverged"
    assert found["dense"][:2] == ["98.00 (1 seed)", ""]
    assert found["adacomp-gather"] == [
        "97.00 (1 seed)", "-1.00 points", "200x", "50", "100", "80.0x", "1.0 / 2.0 / 3.0"
    ]  # fmt: skip
    assert found["adacomp-sum"][:2] == ["diverged", ""]


def test_a_method_is_compared_with_the_dense_runs_of_its_seeds() -> None:
    at: dict[str, Any] = {"model": "shakespeare-transformer", "optimizer": "adamw"}
    records = [record(of("dense", seed, **at), loss, down=1000.0) for seed, loss in ((0, 2.0), (1, 4.0))]
    records += [record(of("wire-16", seed, **at), loss, down=500.0) for seed, loss in ((0, 2.0), (2, 9.0))]
    sent = [{"step": step, "bytes_down": down} for step, down in ((0, 1000.0), (84, 100.0))]
    records += [record(of("adacomp-warm", **at), 2.1, switch=sent)]
    half = rows(report.tables(records)["Transformer with AdamW"])["wire-16"]
    assert half[1:] == ["+0.0%", "", "500", "2.0x"], "there is no dense of its other seed"
    tried = {row[1]: row for row in report.tables(records)["Transformer: what was tried for AdaComp"].rows}
    assert tried["adacomp-warm"][3:6] == ["+5.0%", "", "3.6x"], "80 of 400 steps were dense"


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three runs, of which nothing is trained in earnest; the ids of those that `make study` would train."""
    grid = [of("dense"), of("adacomp-gather"), of("scalecom")]
    seen: list[str] = []

    def train_all(missing: list[Run], out: Path, jobs: int, device: str) -> int:
        seen.extend(run.id for run in missing)
        put(out / "runs", *(record(run, 90.0) for run in missing))
        return 0

    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "runs", lambda: iter(grid))
    monkeypatch.setattr(command, "train_all", train_all)
    return seen


def study(tmp_path: Path, *options: str) -> Any:
    return CliRunner().invoke(command.main, ["--out", str(tmp_path), *options], catch_exceptions=False)


def kept(tmp_path: Path) -> list[Record]:
    return json.loads((tmp_path / "docs/study.json").read_text(encoding="utf-8"))


def test_only_missing_runs_are_trained_and_their_results_kept(tmp_path: Path, trained: list[str]) -> None:
    older = record(of("scalecom"), 97.0)
    older["settings"]["batch"] = 1
    put(tmp_path / "runs", record(of("dense"), 98.0), record(of("adacomp-gather"), 97.0), older)
    for _ in range(2):
        assert study(tmp_path).exit_code == 0
        assert trained == [of("scalecom").id]
    assert [(one["variant"], one["accuracy"]) for one in kept(tmp_path)] == [
        ("dense", 98.0), ("adacomp-gather", 97.0), ("scalecom", 90.0)
    ]  # fmt: skip
    first = [(tmp_path / name).read_bytes() for name in (report.PAGE, "docs/study.json", "docs/study-bytes.png")]
    assert study(tmp_path / "elsewhere", "--report-only").exit_code == 0  # from what was kept
    written = ("elsewhere/" + report.PAGE, "docs/study.json", "docs/study-bytes.png")
    assert [(tmp_path / name).read_bytes() for name in written] == first


def test_options_for_a_part_and_for_the_report_only(tmp_path: Path, trained: list[str]) -> None:
    put(tmp_path / "runs", record(of("dense"), 98.0))
    assert study(tmp_path, "--report-only").exit_code == 0
    assert trained == []
    assert study(tmp_path, "--only", "*-adacomp-*").exit_code == 0
    assert trained == [of("adacomp-gather").id]
    nothing = study(tmp_path, "--only", "mnist-mlp-4-adacomp*")
    assert nothing.exit_code == 1 and "no run matches 'mnist-mlp-4-adacomp*'" in nothing.output


def test_a_failed_run_is_reported(tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "runs", record(of("dense"), 98.0))
    monkeypatch.setattr(command, "train_all", lambda missing, *_: len(missing))
    assert study(tmp_path).exit_code == 1
    assert [one["variant"] for one in kept(tmp_path)] == ["dense"]

    def no_network(*_: object) -> int:
        raise DataError("check the network")

    monkeypatch.setattr(command, "train_all", no_network)
    failed = study(tmp_path)
    assert failed.exit_code == 1 and "Error: check the network" in failed.output
