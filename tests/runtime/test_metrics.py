"""The metrics' names, and the server."""

from __future__ import annotations

import socket
import urllib.request
from collections import Counter
from contextlib import ExitStack, closing

import pytest
from prometheus_client.parser import text_string_to_metric_families

from p4reduce_runtime import metrics, metrics_server
from p4reduce_runtime.metrics import Sample
from p4reduce_runtime.metrics_server import MetricsServer
from p4reduce_runtime.settings import ConfigError
from rigs.limits import LIMIT_S

DECLARED = list(metrics.declared())


@pytest.mark.parametrize("metric", DECLARED, ids=lambda metric: metric.name)
def test_names_and_labels(metric: metrics.Metric) -> None:
    assert metric.name.startswith("p4reduce_")
    assert metric.help.endswith(".")
    assert not {"job", "instance"} & set(metric.labels), "Prometheus gives these itself"


def test_no_name_is_declared_twice() -> None:
    assert [name for name, times in Counter(metric.name for metric in DECLARED).items() if times > 1] == []


def get(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=LIMIT_S) as answer:
        return str(answer.read().decode())


def primary(address: str) -> MetricsServer:
    return MetricsServer(address, lambda: [Sample(metrics.PRIMARY, 1)], insecure=False)


def test_samples_come_out_as_prometheus_reads_them() -> None:
    found = [Sample(metrics.JOB_ROUNDS, 5, ("a",)), Sample(metrics.JOB_ROUNDS, 7, ("b",)), Sample(metrics.PRIMARY, 1)]
    with closing(MetricsServer("127.0.0.1:0", lambda: found, insecure=False)) as server:
        families = {family.name: family for family in text_string_to_metric_families(get(server.address))}
    rounds = families["p4reduce_job_rounds"]
    assert rounds.type == "counter"
    assert {sample.labels["job_name"]: sample.value for sample in rounds.samples} == {"a": 5, "b": 7}
    assert families["p4reduce_switch_primary"].type == "gauge"


def test_a_metrics_server_beyond_loopback_needs_insecure() -> None:
    with pytest.raises(ConfigError, match="every host that reaches 0.0.0.0:0 could read the metrics"):
        MetricsServer("0.0.0.0:0", list, insecure=False)
    MetricsServer("0.0.0.0:0", list, insecure=True).close()


def test_an_address_in_use_is_an_error_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"cannot serve metrics on {address}: .*--metrics"):
            MetricsServer(address, list, insecure=False)


def test_silent_clients_block_no_other_request_and_keep_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_LIMIT_S", 2.0)
    with ExitStack() as stack:
        server = stack.enter_context(closing(primary("127.0.0.1:0")))
        host, _, port = server.address.rpartition(":")
        address = (host, int(port))
        silent = [stack.enter_context(socket.create_connection(address, timeout=LIMIT_S)) for _ in range(20)]
        assert "p4reduce_switch_primary 1.0" in get(server.address)
        assert [connection.recv(1) for connection in silent] == [b""] * 20, "the server ends them"


def test_it_serves_on_an_ipv6_address() -> None:
    with closing(primary("[::1]:0")) as server:
        assert server.address.startswith("[::1]:")
        assert "p4reduce_switch_primary 1.0" in get(server.address)
