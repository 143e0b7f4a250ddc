"""The study's results: which count, how they are kept, what the tables say, and which runs are still missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import p4reduce_lab.study.__main__ as command
from p4reduce_lab.study import report, transformer_report
from p4reduce_lab.study.data import DataError
from p4reduce_lab.study.grid import TASKS, Run, runs
from p4reduce_lab.study.results import Group, is_current, read
from p4reduce_lab.tables import write_records
from rigs.study_records import Record, put, record

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[3] / "docs"
MLP = "mnist-mlp"


def of(variant: str, seed: int = 0, *, model: str = MLP, workers: int = 4, optimizer: str = "sgd") -> Run:
    return Run(model, workers, optimizer, variant, seed)


def ids(records: list[Record]) -> list[str]:
    return [one["id"] for one in records]


def test_finished_runs_are_read_in_the_order_of_the_grid(tmp_path: Path) -> None:
    some = list(runs())[::7]
    put(tmp_path, *(record(run, 50.0) for run in reversed(some)))
    assert ids(read(tmp_path)) == [run.id for run in some]


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


def test_files_of_runs_take_precedence_over_kept_records(tmp_path: Path) -> None:
    kept = tmp_path / "study.json"
    old = [record(of("dense"), 10.0), record(of("scalecom"), 20.0)]
    write_records(kept, old)
    new = record(of("dense"), 98.0)
    put(tmp_path / "runs", new)
    assert read(tmp_path / "runs", kept) == [new, old[1]]
    assert read(tmp_path / "runs", tmp_path / "nothing.json") == read(tmp_path / "runs") == [new]


def test_records_are_kept_one_a_line(tmp_path: Path) -> None:
    records = [record(of(variant), 98.0, rates={"all": 3.5}) for variant in ("dense", "adacomp-gather", "scalecom")]
    write_records(tmp_path / "study.json", records)
    lines = (tmp_path / "study.json").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line.rstrip(",")) for line in lines[1:-1]] == records
    assert (lines[0], lines[-1]) == ("[", "]")
    assert read(tmp_path / "none", tmp_path / "study.json") == records


def test_figures_are_over_the_seeds() -> None:
    values = [97.0, None, 98.0]
    group = Group([record(of("dense", seed), value) for seed, value in enumerate(values)])
    assert group.text(2) == "97.50 (97.00 to 98.00), 1 diverged"
    assert (group.bytes_a_step("bytes_down"), group.least_bytes_down()) == (1000, 1000)
    assert group.off_by() == pytest.approx(0.1)
    assert [group.residue(part) for part in (0, 0.5, 1)] == [1, 2, 3]
    assert Group([record(of("dense"), None)]).text(2) == "diverged"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """An empty folder for the report."""
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


def table(docs: Path, name: str) -> dict[tuple[str, ...], list[str]]:
    """Cells by the first one (of the table of workers and others, the first two)."""
    text = (docs / report.PAGE).read_text(encoding="utf-8")
    found = text.partition(f"\n## {report.TITLES[name]}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.strip().splitlines()[2:]]
    keys = 1 if name in TASKS else 2
    return {tuple(row[:keys]): row[keys:] for row in rows}


def everything() -> list[Record]:
    """Some of every table's; the accuracy of variants other than dense is 1 point, or the loss 10 %, worse."""
    rates = {"all": 200.0, "linear": 250.4, "recurrent": 150.0}
    found = []
    for run in runs():
        best = 98.0 if TASKS[run.model].measure == "accuracy" else 1.5
        worse = best - 1 if best > 50 else 1.65
        if run.variant == "dense":
            found.append(record(run, best, down=8000.0))
        else:
            found.append(record(run, worse, down=100.0, rates=rates))
    return found


def test_optimizers_at_a_large_batch(tmp_path: Path, docs: Path) -> None:
    made = {"state_per_parameter": 1.0}
    at = {"model": "mnist-mlp-4096", "optimizer": "novograd"}
    put(tmp_path / "runs", record(of("dense", **at), 97.0, **made), record(of("adacomp-auto", **at), 96.5, **made))
    report.write_report(tmp_path / "runs", docs)
    (row,) = table(docs, "novograd").values()
    assert row[-5:] == ["1.00", "97.00 (1 seed)", "96.50 (1 seed)", "-0.50 points", ""]


def test_batches_and_many_workers(tmp_path: Path, docs: Path) -> None:
    at = {"model": "mnist-mlp-512x468"}
    alike = {"similarity": [[49, 0.9, 0.9], [50, 0.2, 0.3], [99, 0.4, 0.7]]}  # the first is of the warm-up
    for workers in (4, 32):
        dense = record(of("dense", workers=workers, **at), 97.0, down=8000.0, **alike)
        scalecom = record(of("scalecom", workers=workers, **at), 95.0, down=80.0, rates={"all": 128.0}, **alike)
        put(tmp_path / "runs", dense, scalecom)
    put(tmp_path / "runs", record(of("dense"), 98.0))  # of before similarities were recorded
    report.write_report(tmp_path / "runs", docs)
    compared = ["", "", "", "95.00 (1 seed)", "-2.00 points", "128x"]
    assert table(docs, "batches") == {
        ("128", "1,872"): ["98.00 (1 seed)", "", "", "", "", "", "", "", ""],
        ("512", "468"): ["97.00 (1 seed)", *compared, "0.30", "0.50"],
    }
    row = ["97.00 (1 seed)", *compared, "", "100.0x", "0.30", "0.50"]
    assert {key[0]: [key[1], *cells] for key, cells in table(docs, "many-workers").items()} == {"4": row, "32": row}


def test_baselines_and_bins_beside_dense(tmp_path: Path, docs: Path) -> None:
    cnn, lstm, longer = {"model": "mnist-cnn"}, {"model": "shakespeare-lstm"}, {"model": "shakespeare-lstm-20000"}
    put(
        tmp_path / "runs",
        record(of("dense", **cnn), 98.0),
        record(of("one-bit", **cnn), 97.5, rates={"all": 29.0}),
        record(of("dense", **lstm), 1.5),
        record(of("adacomp-bins-100", **lstm), 1.53, rates={"all": 60.0}),
        record(of("dense", **longer), 1.4),
        record(of("adacomp-gather", **longer), 1.4, rates={"all": 190.0}),
    )
    report.write_report(tmp_path / "runs", docs)
    assert table(docs, "baselines") == {
        ("dense", "98.00 (1 seed)"): ["", ""],
        ("one-bit", "97.50 (1 seed)"): ["-0.50 points", "29x"],
    }
    assert "None of these trainings has been run yet." in (docs / report.PAGE).read_text(encoding="utf-8")
    bins = table(docs, "bins")
    assert bins["10,000", "adacomp-bins-100"] == ["1.5300 (1 seed)", "+2.00%", "60x"]
    assert bins["20,000", "adacomp-gather"] == ["1.4000 (1 seed)", "+0.00%", "190x"]


def test_fewer_bits_beside_dense(tmp_path: Path, docs: Path) -> None:
    cnn = {"model": "mnist-cnn"}
    eight = record(of("wire-8-feedback", **cnn), 97.5, down=2000.0)
    put(tmp_path / "runs", record(of("dense", **cnn), 98.0, down=8000.0), eight, record(of("dense"), 98.0))
    report.write_report(tmp_path / "runs", docs)
    assert table(docs, "rounded") == {
        ("MNIST CNN", "dense"): ["98.00 (1 seed)", "", "8,000", "1.0x", ""],
        ("MNIST CNN", "wire-8-feedback"): [
            "97.50 (1 seed)",
            "-0.50 points",
            "2,000",
            "4.0x",
            "1.0000 / 2.0000 / 3.0000",
        ],
    }


def test_the_tables_are_those_of_the_records(tmp_path: Path, docs: Path) -> None:
    put(tmp_path / "runs", *everything())
    report.write_report(tmp_path / "runs", docs)
    main = table(docs, MLP)
    assert len(main) == 11
    assert main["dense",][0] == "98.00 (98.00 to 98.00)"
    assert main["dense",][1] == ""  # it is not held against itself
    assert main["adacomp-gather",] == [
        "97.00 (97.00 to 97.00)", "-1.00 points", "200x", "50", "100", "80.0x", "10%", "1.0 / 2.0 / 3.0"
    ]  # fmt: skip
    assert table(docs, "shakespeare-lstm")["scalecom",][:2] == ["1.6500 (1 seed)", "+10.00%"]
    assert table(docs, "adam")["MNIST CNN", "scalecom"][1:2] == ["-1.00 points"]
    assert table(docs, "adam")["MNIST CNN", "dense"][1] == ""
    accuracies = [f"{best}.00 ({best}.00 to {best}.00)" for best in (98, 97, 97)]
    assert table(docs, "workers")["MNIST MLP", "8"][:4] == [*accuracies, "8,000"]
    assert table(docs, "rates")["MNIST MLP", "linear"] == ["500", "250x"]
    assert table(docs, "ring")["ring-bounded-6", "1"] == [
        "97.00 (97.00 to 97.00)", "+0.00 points", "250", "4.00x", "50.00%"
    ]  # fmt: skip
    assert [key for key, cells in table(docs, "ring").items() if not cells[1]] == [("ring-dense", "1")]
    assert table(docs, "sparsity")["16", "90 of 5,000"] == ["all", "1,200", "1,800", "20", "40", "60.0x", "45.0x"]
    for picture in ("study-bytes.png", "study-residues.png"):
        assert (docs / picture).stat().st_size > 1000
    assert read(tmp_path / "none", docs / "study.json") == everything()


def test_writing_the_report_again_changes_nothing(tmp_path: Path, docs: Path) -> None:
    put(tmp_path / "runs", *everything()[:20])
    report.write_report(tmp_path / "runs", docs)
    first = [(docs / name).read_bytes() for name in (report.PAGE, "study.json")]
    report.write_report(tmp_path / "none", docs)  # from what was kept
    assert [(docs / name).read_bytes() for name in (report.PAGE, "study.json")] == first


def test_a_diverged_run_is_shown_as_diverged(tmp_path: Path, docs: Path) -> None:
    diverged = [record(of("adacomp-sum", seed), None) for seed in range(3)]
    put(tmp_path / "runs", record(of("dense"), 98.0), *diverged)
    report.write_report(tmp_path / "runs", docs)
    assert table(docs, MLP)["adacomp-sum",][:2] == ["diverged", ""]
    assert table(docs, MLP)["dense",][0] == "98.00 (1 seed)"
    assert "nan" not in (docs / report.PAGE).read_text(encoding="utf-8")


def test_without_results_nothing_is_written(tmp_path: Path, docs: Path) -> None:
    report.write_report(tmp_path / "none", docs)
    assert not list(docs.iterdir())


def test_the_page_of_tables_is_that_of_the_kept_records(tmp_path: Path) -> None:
    page = report.page(read(tmp_path / "none", DOCS / "study.json"), transformer_report.step_times(DOCS))
    assert (DOCS / report.PAGE).read_text(encoding="utf-8") == page, "run `python -m p4reduce_lab.study --report-only`"


@pytest.fixture
def trained(tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three runs, of which nothing is trained in earnest; the ids of those that `make study` would train."""
    grid = [of("dense"), of("adacomp-gather"), of("scalecom")]
    seen: list[str] = []

    def train_all(missing: list[Run], out: Path, jobs: int) -> int:
        seen.extend(run.id for run in missing)
        put(out / "runs", *(record(run, 90.0) for run in missing))
        return 0

    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "runs", lambda: iter(grid))
    monkeypatch.setattr(command, "train_all", train_all)
    return seen


def study(tmp_path: Path, *options: str) -> Any:
    return CliRunner().invoke(command.main, ["--out", str(tmp_path), *options], catch_exceptions=False)


def test_only_missing_runs_are_trained(tmp_path: Path, docs: Path, trained: list[str]) -> None:
    older = record(of("scalecom"), 97.0)
    older["settings"]["batch"] = 1
    put(tmp_path / "runs", record(of("dense"), 98.0), record(of("adacomp-gather"), 97.0), older)
    assert study(tmp_path).exit_code == 0
    assert trained == [of("scalecom").id]
    assert study(tmp_path).exit_code == 0
    assert trained == [of("scalecom").id]  # all of it is there now
    assert set(table(docs, MLP)) == {("dense",), ("adacomp-gather",), ("scalecom",)}


def test_options_for_a_part_and_for_the_report_only(tmp_path: Path, docs: Path, trained: list[str]) -> None:
    put(tmp_path / "runs", record(of("dense"), 98.0))
    assert study(tmp_path, "--report-only").exit_code == 0
    assert trained == [] and set(table(docs, MLP)) == {("dense",)}
    assert study(tmp_path, "--only", "*-adacomp-*").exit_code == 0
    assert trained == [of("adacomp-gather").id]


def test_a_failed_run_is_reported(
    tmp_path: Path, docs: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "runs", record(of("dense"), 98.0))
    monkeypatch.setattr(command, "train_all", lambda missing, out, jobs: len(missing))
    assert study(tmp_path).exit_code == 1
    assert set(table(docs, MLP)) == {("dense",)}

    def no_network(missing: list[Run], out: Path, jobs: int) -> int:
        raise DataError("check the network")

    monkeypatch.setattr(command, "train_all", no_network)
    failed = study(tmp_path)
    assert failed.exit_code == 1 and "Error: check the network" in failed.output
