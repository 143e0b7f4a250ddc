"""The demo's table, report and picture, from synthetic results."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("matplotlib")

from p4reduce_lab import demo_report as report
from p4reduce_lab.demo_report import draw
from p4reduce_lab.training import Result


def a_run(name: str, seed: int, up: float | None, **more: object) -> Result:
    return {
        "name": name,
        "seed": seed,
        "world_size": 4,
        "parameters": 1000,
        "steps": 30,
        "test_accuracy": 0.97 + seed / 100,
        "up_bytes_per_step": up,
        "down_bytes_per_step": up,
        "retransmissions": 0 if up is not None else None,
        "seconds": 2.0,
        "losses": [2.0 / (step + 1) for step in range(30)],
        **more,
    }


def runs(seeds: int) -> list[Result]:
    return [
        a_run(name, seed, up)
        for seed in range(seeds)
        for name, up in (("gloo-dense", 6600.0), ("p4reduce-dense", 4500.0), ("p4reduce-adacomp", 600.0))
    ]


def shown(rows: list[Result]) -> str:
    text = io.StringIO()
    Console(file=text, width=120).print(report.table(rows))
    return text.getvalue()


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_table_and_the_picture(tmp_path: Path, seeds: int) -> None:
    text = shown(runs(seeds))
    assert "2(N-1)/N·4·D" in text and "6,000 B" in text
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if line.count("│") > 5}
    accuracy = "97.00 %" if seeds == 1 else "98.00 ± 1.00 %"
    assert accuracy in rows["p4reduce-adacomp"] and "10.00x" in rows["p4reduce-adacomp"]
    assert "0.91x" in rows["gloo-dense"]
    draw(tmp_path / "demo.png", runs(seeds))
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_the_bits_that_one_worker_sends_are_shown_by_kind_of_layer() -> None:
    rates = ({"all": 100.0, "conv": 40.0}, {"all": 300.0, "conv": 60.0})
    rows = [a_run("p4reduce-dense", seed, 4500.0, rates={}, optimizer="--lr 0.3") for seed in (0, 1)]
    rows += [a_run("p4reduce-adacomp", seed, 600.0, rates=own) for seed, own in enumerate(rates)]
    text = " ".join(shown(rows).split())
    assert "adacomp: of each parameter" in text and "0.16 bits (200x), 0.64 bits (50x) in convolutions." in text
    assert "dense: of each parameter" not in text and "SGD with --lr 0.3 " in text


def test_bytes_that_were_not_measured_are_shown_as_not_known(tmp_path: Path) -> None:
    rows = [a_run("gloo-dense", 0, None), a_run("p4reduce-dense", 0, 4500.0)]
    assert shown(rows).count("not known") == 4
    draw(tmp_path / "demo.png", rows)


def test_the_report_file_has_the_runs_and_the_machine(tmp_path: Path) -> None:
    report.write(tmp_path, runs(2), 12.0, Console(file=io.StringIO()), {"testbed": {"target": "bmv2"}})
    saved = json.loads((tmp_path / "report.json").read_text())
    assert [run["name"] for run in saved["runs"]] == 2 * ["gloo-dense", "p4reduce-dense", "p4reduce-adacomp"]
    assert saved["ring_bytes_formula"] == 6000
    assert saved["testbed"] == {"target": "bmv2"}
    assert {"processor", "cores", "python", "torch", "date"} <= set(saved["machine"])
