"""The door at which Prometheus asks for metrics: HTTP, on loopback unless the program is told `insecure`."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from p4reduce_runtime.metrics import Metric, Sample
from p4reduce_runtime.security import is_loopback
from p4reduce_runtime.settings import ConfigError

_log = logging.getLogger(__name__)

REQUEST_LIMIT_S: Final = 5.0
"""How long a caller may take to say what it wants, and to take the answer."""


class MetricsDoor:
    """Serves what `collect` returns, at every request anew, from a thread until `close`."""

    def __init__(self, address: str, collect: Callable[[], Iterable[Sample]], *, insecure: bool) -> None:
        """`address` is HOST:PORT (port 0: any); `collect` is called on threads of this door and does not raise.

        Raises ConfigError for an address that cannot be had, or beyond loopback unless `insecure`.
        """
        if not insecure and not is_loopback(address):
            raise ConfigError(
                f"whoever reaches {address} could read the metrics there: serve them on 127.0.0.1, or say --insecure"
            )
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        registry = CollectorRegistry()
        registry.register(_Collector(collect))
        server = _SixServer if ":" in host else _Server
        try:
            self._server = make_server(host, int(port), make_wsgi_app(registry), server, _Handler)
        except OSError as error:
            raise ConfigError(
                f"cannot serve metrics on {address}: {error.strerror}; choose another address with --metrics"
            ) from error
        self.address = f"{address.rpartition(':')[0]}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(REQUEST_LIMIT_S)


class _Collector:
    """Samples as prometheus-client wants them: one family a metric."""

    def __init__(self, collect: Callable[[], Iterable[Sample]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Family]:
        families: dict[Metric, Any] = {}
        for metric, value, labels in self._collect():
            if metric not in families:
                kind = CounterMetricFamily if metric.counter else GaugeMetricFamily
                unit = f" ({metric.unit})" if metric.unit else ""
                families[metric] = kind(metric.name, metric.help + unit, labels=metric.labels)
            families[metric].add_metric(labels, value)
        yield from families.values()


class _Server(ThreadingWSGIServer):
    """Does not ask the name service who it is, and is not upset by a caller that goes away."""

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a request for metrics failed", exc_info=True)


class _SixServer(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """Gives up a caller that says nothing, and logs no request."""

    timeout = REQUEST_LIMIT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
