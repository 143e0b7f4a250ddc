"""The metrics' names, and the door that serves them."""

from __future__ import annotations

import socket
import urllib.request
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from p4reduce_runtime import metrics
from p4reduce_runtime.metrics import Sample
from p4reduce_runtime.metrics_door import MetricsDoor
from p4reduce_runtime.settings import ConfigError

DECLARED = list(metrics.declared())


@pytest.mark.parametrize("metric", DECLARED, ids=lambda metric: metric.name)
def test_a_name_says_the_unit(metric: metrics.Metric) -> None:
    assert metric.name.startswith("p4reduce_")
    if metric.unit:
        assert metric.name.removesuffix("_total").endswith(f"_{metric.unit}")
    assert metric.help.endswith(".")
    assert not {"job", "instance"} & set(metric.labels), "Prometheus gives these itself"


def test_no_name_is_declared_twice() -> None:
    assert [name for name, times in Counter(metric.name for metric in DECLARED).items() if times > 1] == []


def get(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_samples_come_out_as_prometheus_reads_them() -> None:
    found = [Sample(metrics.JOB_ROUNDS, 5, ("a",)), Sample(metrics.JOB_ROUNDS, 7, ("b",)), Sample(metrics.PRIMARY, 1)]
    door = MetricsDoor("127.0.0.1:0", lambda: found, insecure=False)
    try:
        families = {family.name: family for family in text_string_to_metric_families(get(door.address))}
    finally:
        door.close()
    rounds = families["p4reduce_job_rounds"]
    assert rounds.type == "counter"
    assert {sample.labels["job_name"]: sample.value for sample in rounds.samples} == {"a": 5, "b": 7}
    assert families["p4reduce_switch_primary"].type == "gauge"


def test_the_door_is_on_loopback_unless_told() -> None:
    with pytest.raises(ConfigError, match="whoever reaches 0.0.0.0:0 could read the metrics"):
        MetricsDoor("0.0.0.0:0", list, insecure=False)
    door = MetricsDoor("0.0.0.0:0", list, insecure=True)
    door.close()


def test_a_taken_address_is_told_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"cannot serve metrics on {address}: .*--metrics"):
            MetricsDoor(address, list, insecure=False)


def test_callers_that_say_nothing_keep_nobody_waiting() -> None:
    door = MetricsDoor("127.0.0.1:0", lambda: [Sample(metrics.PRIMARY, 1)], insecure=False)
    host, _, port = door.address.rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(20)]
    try:
        assert "p4reduce_switch_primary 1.0" in get(door.address)
    finally:
        for connection in silent:
            connection.close()
        door.close()
