"""The HTTP server for Prometheus: prometheus_client's own, on loopback unless `insecure`."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from p4reduce_runtime.metrics import Metric, Sample
from p4reduce_runtime.security import is_loopback
from p4reduce_runtime.settings import ConfigError

_log = logging.getLogger(__name__)

REQUEST_LIMIT_S: Final = 5.0
"""Seconds that the server waits for a request, and for the client to take the answer."""


class MetricsServer:
    """Serves what `collect` returns, at every request anew, from a thread until `close`."""

    def __init__(self, address: str, collect: Callable[[], Iterable[Sample]], *, insecure: bool) -> None:
        """`address` is HOST:PORT (port 0: any); `collect` is called on the server's threads and does not raise.

        Raises ConfigError for an address that cannot be had, or beyond loopback unless `insecure`.
        """
        if not insecure and not is_loopback(address):
            raise ConfigError(
                f"every host that reaches {address} could read the metrics: serve them on 127.0.0.1, or say --insecure"
            )
        host, _, port = address.rpartition(":")
        registry = CollectorRegistry()
        registry.register(_Collector(collect))
        try:
            self._server, self._thread = start_http_server(int(port), host.strip("[]"), registry)
        except OSError as error:
            raise ConfigError(
                f"cannot serve metrics on {address}: {error.strerror}; choose another address with --metrics"
            ) from error
        # Without a time limit a client that sends nothing would keep a thread for ever.
        handler = cast(type, self._server.RequestHandlerClass)
        self._server.RequestHandlerClass = type("Handler", (handler,), {"timeout": REQUEST_LIMIT_S})
        vars(self._server)["handle_error"] = _log_failure  # socketserver prints a traceback of each
        self.address = f"{host}:{self._server.server_port}"
        _servers.add(self)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(REQUEST_LIMIT_S)


_servers: Final[weakref.WeakSet[MetricsServer]] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """Let a forked child not keep the port, which a rank that is started again needs."""
    for server in list(_servers):
        server._server.socket.close()


os.register_at_fork(after_in_child=_leave_to_parent)


def _log_failure(request: object, client_address: object) -> None:
    _log.debug("a request for metrics failed", exc_info=True)


class _Collector(Collector):
    """Converts samples to prometheus_client's families, one a metric."""

    def __init__(self, collect: Callable[[], Iterable[Sample]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        families: dict[Metric, CounterMetricFamily | GaugeMetricFamily] = {}
        for metric, value, labels in self._collect():
            if metric not in families:
                kind = CounterMetricFamily if metric.counter else GaugeMetricFamily
                families[metric] = kind(metric.name, metric.help, labels=metric.labels)
            families[metric].add_metric(labels, value)
        yield from families.values()
