"""`p4reduce bench all_reduce` and the like: the columns and the JSON of nccl-tests."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from click.testing import CliRunner

import p4reduce_contracts
from p4reduce_contracts.cli import main
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_lab.bench.nccl_tests import CollectiveTest, Shape, least_time, measure, run
from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S
from rigs.script_runs import environment
from rigs.system import System

PROGRAM = Path(p4reduce_contracts.__file__).parent / "__main__.py"
HALF = r" +(?:([\d.]+) +([\d.]+) +([\d.]+) +(\d+))?"
ROW = re.compile(r"(#?) +(\d+) +(\d+) +float +(sum) +(-1)" + HALF + HALF + r"(?P<group>  gloo)?$")


@pytest.mark.slow
def test_the_running_switch_beside_gloo(wide_system: System, torch_server: ForkServer, tmp_path: Path) -> None:
    variables = {**environment(wide_system), "P4REDUCE_TOKEN": "secret", "P4REDUCE_HOSTS": "on"}
    for collective, sizes, factor in (("all_reduce", [8, 512, 32768], 1.0), ("reduce_scatter", [512, 32768], 0.5)):
        file = tmp_path / f"{collective}.json"
        options = ["-b", "8", "-e", "32K", "-f", "64", "-n", "2", "--gloo", "-J", str(file)]
        link = ["--link", "100"] if collective == "all_reduce" else []
        command = str(PROGRAM), "bench", collective, *options, *link
        printed = torch_server.launch(tmp_path, 2, *command, environment=variables, timeout_s=LIMIT_S)
        rows = [found for found in map(ROW.fullmatch, printed[0].splitlines()) if found]
        assert [int(row[2]) for row in rows] == [size for size in sizes for _ in range(2)], printed[0]
        assert printed[0].count("on a host's link of 100 Mbit/s") == len(link and sizes)
        assert [row[1] + (row["group"] or "") for row in rows] == ["", "#  gloo"] * len(sizes)
        assert "# Out of bounds values : 0 OK" in printed[0] and not ROW.search(printed[1])
        document = json.loads(file.read_text())
        assert document["version"] == 3 and document["out_of_bounds"] == {"count": 0, "okay": "true"}
        assert len(document["config"]["devices"]) == 2 and document["config"]["step_factor"] == 64
        assert "secret" not in file.read_text() and "P4REDUCE_HOSTS=on" in document["env"]
        for row, result in zip(rows, document["results"], strict=True):
            assert (result["size"], result["count"], result["redop"]) == (int(row[2]), int(row[3]), "sum")
            assert (result["type"], result["root"].strip(), result["actual_iterations"]) == ("float", "-1", 2)
            assert result["experiment_name"] == (row["group"] or "p4reduce").strip()
            assert (result["out_of_place"] is None) == (collective == "all_reduce") == (row[6] is None)
            inside = result["in_place"]
            assert inside["nwrong"] == 0 and inside["alg_bw"] == pytest.approx(result["size"] / inside["time"] / 1e3)
            assert inside["bus_bw"] == pytest.approx(inside["alg_bw"] * factor)


def test_the_least_time_by_placement() -> None:
    def line(switches: int, beside: list[int]) -> str:
        lease = Lease(1, "x", 1, 0, 4, 4, 8, 32, switches=tuple(LeasedSwitch() for _ in range(switches)))
        return least_time(100, lease, 4, beside, 4 << 20)

    def said(tensors: float) -> str:
        return f"{4096 * 8 * 1130 / 100 * tensors:.0f} us: {tensors:g} x"  # 4096 frames of 1 KB, with headers

    of_host = "the tensor each way on a host's link of 100 Mbit/s"
    assert line(1, [0] * 4) == f"#  at least {said(1)} {of_host}; if a switch has one such link too, {said(4)}"
    assert line(4, [0] * 4) == f"#  at least {said(1)} {of_host}"
    assert line(4, [1] * 4) == f"#  at least {said(1.5)} {of_host}"


def one_rank(off_by: int = 0) -> Mock:
    """Return a process group of one rank, whose sums spoil a number and whose barriers do nothing."""

    def all_reduced(tensors: list[torch.Tensor]) -> Mock:
        tensors[0][-1] += off_by
        return Mock()

    return Mock(**{"rank.return_value": 0, "size.return_value": 1, "allreduce.side_effect": all_reduced})


@pytest.mark.parametrize("wrong", [0, 1])
def test_wrong_numbers_are_counted(wrong: int) -> None:
    asked = CollectiveTest("all_reduce", 64, 64, 2, 3, 1, "half", None, False)
    shape = Shape.of("all_reduce", 64, torch.float16, 0, 1)
    assert measure(one_rank(wrong), one_rank(), shape, asked, in_place=True).nwrong == wrong


def test_the_report_of_another_run_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    (tmp_path / "report.json").write_text("kept")
    with pytest.raises(FileExistsError):
        run(CollectiveTest("all_reduce", 64, 64, 2, 3, 1, "float", str(tmp_path / "report.json"), False))
    assert (tmp_path / "report.json").read_text() == "kept"


def test_sizes_are_rounded_as_nccl_tests_rounds_them() -> None:
    def sizes(collective: str, dtype: torch.dtype) -> tuple[int, int]:
        shape = Shape.of(collective, 200, dtype, 1, 3)
        return shape.size, shape.part

    assert sizes("all_reduce", torch.float16) == (200, 100)
    assert sizes("reduce_scatter", torch.float32) == (192, 16)
    assert sizes("reduce_scatter", torch.float16) == (192, 32)
    assert CollectiveTest("all_reduce", 8, 100, 3, 1, 1, "float", None, False).sizes() == [8, 24, 72]


@pytest.mark.parametrize(
    ("options", "variables", "said"),
    [
        ([], {}, "start it by a launcher, as `torchrun"),
        ([], {"WORLD_SIZE": "1", "RANK": "0"}, "takes two ranks or more"),
        (["-b", "1T"], {"WORLD_SIZE": "2"}, "'1T' is no size: give bytes, like 8, 64K or 1G"),
        (["-b", "2K", "-e", "1K"], {"WORLD_SIZE": "2"}, "-b is larger than -e"),
    ],
)
def test_what_is_missing_is_said(
    options: list[str], variables: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    done = CliRunner().invoke(main, ["bench", "all_reduce", *options], env={**os.environ, **variables})
    assert done.exit_code in (1, 2) and said in done.output
