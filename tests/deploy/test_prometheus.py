"""The files of examples/deploy/prometheus, by Debian's Prometheus."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from socket import SOCK_DGRAM
from typing import Any

import pytest

import p4reduce
from p4reduce_contracts.jobs.client import JobClient
from rigs.limits import LIMIT_S, wait_until
from rigs.ports import own_address
from rigs.script_runs import run_command
from rigs.system import Process, start_controller

FILES = Path(__file__).parents[2] / "examples/deploy/prometheus"
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: apt install prometheus"),
]


def test_each_alert_fires_when_it_should(tmp_path: Path) -> None:
    for file in (*FILES.iterdir(), Path(__file__).with_name("rules_test.yml")):
        shutil.copy(file, tmp_path)
    for command in ("check config prometheus.yml", "test rules rules_test.yml"):
        run_command("promtool", *command.split(), environment=os.environ, folder=tmp_path)


def test_switch_controller_and_ranks_are_scraped_and_alerts_fire(tmp_path: Path) -> None:
    """A rank joins a job of one; another joins a job of two, sends no heartbeats, and waits for its lease."""
    addresses = ["--listen", own_address(SOCK_DGRAM), "--p4runtime", own_address(), "--metrics", "127.0.0.1:0"]
    rank, prometheus = own_address(), own_address()
    with ExitStack() as stack:
        switch = Process(tmp_path / "switch.log", "switch", "run", *addresses)
        stack.callback(switch.end)
        controller = start_controller(tmp_path, switch)
        stack.callback(controller.end)
        text = (FILES / "prometheus.yml").read_text()
        for example, address in {
            "127.0.0.1:9601": switch.address("metrics"),
            "127.0.0.1:9602": controller.address("metrics on"),
            '"127.0.0.1:9610", "127.0.0.1:9611"': f'"{rank}"',
            "5s": "200ms",
        }.items():
            assert example in text
            text = text.replace(example, address)
        (tmp_path / "prometheus.yml").write_text(text)
        (tmp_path / "rules.yml").write_text((FILES / "rules.yml").read_text().replace("for: 1m", "for: 1s"))
        client = stack.enter_context(JobClient(controller.address("jobs on")))
        client.create_job("alone", 1, 4)
        client.create_job("waiting", 2, 4)
        client.join("waiting", 0, 2)
        comm = p4reduce.join("alone", rank=0, world_size=1, controller=client.address, metrics=rank)
        stack.enter_context(comm)
        files = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
        log = stack.enter_context((tmp_path / "prometheus.log").open("w"))
        command = ["prometheus", f"--web.listen-address={prometheus}", *files]
        stack.callback(stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log)).terminate)
        comm.barrier()
        up = _until(lambda: _asked(prometheus, "query?query=up==1")["result"], lambda found: len(found) == 3)
        assert {each["metric"]["job"] for each in up} == {"p4reduce-switch", "p4reduce-controller", "p4reduce-ranks"}
        query = 'query?query=p4reduce_worker_collectives_total{job_name="alone",rank="0"}'
        _until(lambda: _asked(prometheus, query)["result"], lambda found: bool(found) and found[0]["value"][1] == "1")
        wanted = {("P4ReduceRankSilent", "waiting"), ("P4ReduceNoLease", "")}
        _until(lambda: _firing(prometheus), lambda found: found == wanted)


def _firing(prometheus: str) -> set[tuple[str, str]]:
    alerts = _asked(prometheus, "alerts")["alerts"]
    firing = [alert["labels"] for alert in alerts if alert["state"] == "firing"]
    return {(labels["alertname"], labels.get("job_name", "")) for labels in firing}


def _asked(prometheus: str, what: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://{prometheus}/api/v1/{what}", timeout=LIMIT_S) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
            return data
    except OSError:  # it does not listen yet
        return {"result": [], "alerts": []}


def _until(read: Callable[[], Any], right: Callable[[Any], bool]) -> Any:
    found: list[Any] = []
    wait_until(lambda: found.append(read()) or right(found[-1]))
    return found[-1]
