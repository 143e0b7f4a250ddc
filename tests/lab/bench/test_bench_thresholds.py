"""Thresholds, their file, and what a run ends with."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from rich.console import Console

from p4reduce_lab.bench import cases, run, store
from p4reduce_lab.bench.case import Case, Findings, Need, Run, Series, Threshold
from p4reduce_lab.bench.cli import bench
from p4reduce_lab.processes import Children

HERE = Need("a thing that is here", lambda: True)
NOWHERE = Need("a thing that is nowhere", lambda: False)


def case(name: str, at_least: float, need: Need = HERE) -> Case:
    return Case(
        name,
        f"about {name}",
        Mock(side_effect=AssertionError),
        needs=(need,),
        thresholds=(Threshold(f"{name}: a / b", at_least),),
    )


def found(ratio: float, name: str) -> Findings:
    series = Series("4 MB", "gloo", "loopback", "ms", [1.0, 2.0, 3.0], {"size": 4.0}, {"B over lo": 7.0})
    return Findings([series], {f"{name}: a / b": ratio})


def test_runs_continue_and_each_ends_with_what_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The names of the cases that ran, the status and output of the command, and thresholds.json."""
    software, ran, ratios = ["this"], list[str](), {"x": 1.99, "x-1": 1.0, "xy": 1.0, "even": 2.0}
    those = case("x", 2.0), case("even", 2.0), case("none", 2.0, NOWHERE), case("x-1", 1.0), case("xy", 1.0)
    monkeypatch.setattr(run, "CASES", those)
    monkeypatch.setattr(run, "BY_NAME", {each.name: each for each in those})
    monkeypatch.setattr(cases, "CASES", those)
    monkeypatch.setattr(run, "NETWORKS", HERE)
    monkeypatch.setattr(store, "software", lambda: software[0])

    def run_case(case: Case, path: Path, quick: bool, console: Console) -> Findings:
        ran.append(case.name)
        store.save(path, found(ratios[case.name], case.name), quick=quick)
        return found(ratios[case.name], case.name)

    def bench_of(*arguments: str) -> tuple[int, str, list[str], dict[str, Any]]:
        ran.clear()
        result = CliRunner().invoke(bench, ["--out", str(tmp_path), *arguments], catch_exceptions=False)
        path = tmp_path / "thresholds.json"
        written = json.loads(path.read_text()) if path.is_file() else []
        named = {one["name"].partition(":")[0]: (one["ratio"], one["holds"]) for one in written}
        return result.exit_code, result.output, [*ran], named

    monkeypatch.setattr(run, "_run_case", run_case)
    status, output, _, _ = bench_of("--only", "z")
    assert status == 1 and "there is no case z; there are: x, even, none, x-1, xy" in output
    assert bench_of("--only", "x")[2] == ["x", "x-1"], "a name also selects what begins with it"
    status, output, began, written = bench_of()
    assert (status, began) == (0, ["even", "xy"]) and "kept from an earlier run" in output
    assert "needs a thing that is nowhere" in output
    assert written == {name: (ratio, ratio != 1.99) for name, ratio in ratios.items()} | {"none": (None, False)}
    not_measured = json.loads((tmp_path / "results.json").read_text())["not_measured"]
    assert not_measured == {"none": "needs a thing that is nowhere"}
    line = next(line for line in output.splitlines() if "x: a / b" in line and "does not hold" in line)
    assert "1.99" in line and "2" in line
    assert "3 hold, 1 do not, 1 were not measured" in output and "not final" not in output
    status, _, began, _ = bench_of("--check")
    assert (status, began) == (1, []), "a threshold that does not hold is an error with --check alone"
    ratios["x"] = 4.0
    status, output, began, _ = bench_of("--quick", "--check", "--only", "x")
    assert (status, began) == (0, ["x", "x-1"]) and "not final" in output, "it does not take what another measured"
    assert bench_of("--again", "--only", "x")[2] == ["x", "x-1"]
    software[0] = "another"
    assert bench_of("--only", "x")[2] == ["x", "x-1"]


def test_all_reduces_have_the_bandwidths_of_nccl_tests() -> None:
    """Its PERFORMANCE.md: algbw = S / t, and of an all-reduce busbw = algbw * 2 (n - 1) / n."""
    summed = Series("4 MB", "gloo", "loopback", "ms", [40.0, 20.0, 30.0], size=6_000_000, ranks=4)
    assert (summed.algbw, summed.busbw) == pytest.approx((0.2, 0.3))
    assert summed.text == "4 MB, loopback: gloo 30 ms (20 to 40, 3 x), algbw 0.2 busbw 0.3 GB/s"


def test_a_truncated_result_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    store.save(path, found(2.0, "x"), quick=False)
    assert store.load(path, quick=False) == found(2.0, "x") and store.load(path, quick=True) is None
    path.write_text(path.read_text()[:-20])
    assert store.load(path, quick=False) is None


def test_every_threshold_has_a_name_of_its_own() -> None:
    names = [threshold.name for each in cases.CASES for threshold in each.thresholds]
    assert len(names) == len(set(names)) > 20


def test_the_list_names_cases_needs_and_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    no_networks = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: no_networks)
    shown = CliRunner().invoke(bench, ["--list"], catch_exceptions=False).output
    for each in cases.CASES:
        assert f"{each.name}: {each.about}" in shown
        assert all(f"{threshold.name}: at least {threshold.at_least:g}" in shown for threshold in each.thresholds)


def test_peers_are_measured_in_turns_until_the_limit(tmp_path: Path) -> None:
    run, asked = Run(True, tmp_path, Children(tmp_path), networks=False), list[str]()

    def measure(name: str) -> float:
        asked.append(name)
        return float(len(asked))

    found = run.in_turn({name: partial(measure, name) for name in ("a", "b")})
    assert asked == ["a", "b"] * 3 and found == {"a": [1.0, 3.0, 5.0], "b": [2.0, 4.0, 6.0]}
    assert run.in_turn({"a": lambda: 1.0}, turns=9, limit_s=-1.0, at_least=2) == {"a": [1.0, 1.0]}
    run.ratio("a / b", [8.0, 1.0, 100.0], [2.0, 4.0, 300.0])
    assert run.findings.ratios == {"a / b": 2.0}, "of the medians"
