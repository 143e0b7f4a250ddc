"""What a rank counts, served to Prometheus."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from p4reduce.communicator import Communicator
from p4reduce.errors import JoinError
from p4reduce_runtime import metrics
from p4reduce_runtime.environment import P4REDUCE_METRICS
from p4reduce_runtime.metrics import Sample
from p4reduce_runtime.settings import ConfigError, host_port

_LABELS: Final = ("job_name", "rank")
_BY_NAME: Final = {metric.name: replace(metric, labels=_LABELS) for metric in metrics.declared()}


def address_of(given: str | None, environment: Mapping[str, str]) -> str | None:
    """Return where to serve: what is given, else what P4REDUCE_METRICS says; None: nowhere.

    The variable is the same for all ranks of a host: each one's port is higher by its LOCAL_RANK.
    Raises JoinError for what is no address.
    """
    try:
        if given is not None:
            return host_port("metrics", given)
        if (named := P4REDUCE_METRICS.read(environment)) is None:
            return None
        host, _, port = named.rpartition(":")
        return host_port(P4REDUCE_METRICS.name, f"{host}:{int(port) + int(environment.get('LOCAL_RANK') or 0)}")
    except (ConfigError, ValueError) as error:
        raise JoinError(str(error)) from error


class RankMetrics:
    """A server that runs from the beginning of the joining, and has samples from its end."""

    def __init__(self, address: str, *, insecure: bool) -> None:
        """`address`: HOST:PORT. Raises JoinError when it cannot be had, or is beyond loopback and not `insecure`."""
        from p4reduce_runtime.metrics_server import MetricsServer

        self._communicator: weakref.ref[Communicator] | None = None
        try:
            self._server = MetricsServer(address, self._collect, insecure=insecure)
        except ConfigError as error:
            raise JoinError(str(error)) from error

    @property
    def address(self) -> str:
        """HOST:PORT of the server."""
        return self._server.address

    def attach(self, communicator: Communicator) -> None:
        """Serve this communicator's counts until it is closed. The reference to it is weak."""
        self._communicator = weakref.ref(communicator)
        communicator.at_close.append(lambda _: self.close())

    def close(self) -> None:
        """Stop the server."""
        self._server.close()

    def _collect(self) -> Iterable[Sample]:
        comm = None if self._communicator is None else self._communicator()
        if comm is None:
            return []
        lease = comm.lease
        labels = metrics.job_label(lease.name, lease.job_id, lease.private), str(lease.rank)
        return [Sample(_BY_NAME[name], value, labels) for name, value in comm.metrics().items()]
