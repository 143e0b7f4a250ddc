"""The controller's process: prepares the switch, serves jobs, and writes their entries."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import signal
import time
from collections.abc import Callable
from typing import Any

import grpc

from p4reduce_contracts.artifacts import find
from p4reduce_contracts.jobs import jobs_pb2_grpc
from p4reduce_controller.config import Config
from p4reduce_controller.forwarding import MacTable
from p4reduce_controller.jobs import pipeline as pipelines
from p4reduce_controller.jobs.entry_writer import EntryWriter, SwitchClient
from p4reduce_controller.jobs.notifier import Notifier
from p4reduce_controller.jobs.quotas import Quotas
from p4reduce_controller.jobs.reconciler import SwitchReconciler
from p4reduce_controller.jobs.registry import Registry
from p4reduce_controller.jobs.servicer import JobsServicer, Terms
from p4reduce_controller.jobs.store import Store
from p4reduce_controller.metrics import ControllerMetrics
from p4reduce_controller.p4rt.client import Client
from p4reduce_runtime.logs import event
from p4reduce_runtime.metrics import Sample
from p4reduce_runtime.metrics_server import MetricsServer
from p4reduce_runtime.security import CONTROLLER, WORKER, Security, given, is_loopback, listen
from p4reduce_runtime.settings import ConfigError

_log = logging.getLogger(__name__)

_GRACE_S = 1.0
_CALL_LIMIT_S = 5.0  # of one P4Runtime call
_MAX_REQUEST_BYTES = 64 << 10
_SCRAPE_LIMIT_S = 4.0  # longer than the switch is waited for


def _halves(election_id: int | str) -> tuple[int, int] | None:
    """The high and the low 64 bits of an election id; None for "auto"."""
    return None if isinstance(election_id, str) else (election_id >> 64, election_id & (1 << 64) - 1)


def _roles(security: Security | None) -> frozenset[str]:
    """The roles that the job service answers; without TLS roles are not checked."""
    return frozenset() if security is None else frozenset({CONTROLLER, WORKER})


def _server_options(heartbeat_timeout_s: float) -> list[tuple[str, int]]:
    """Options of the job service. Its pings end the connection of a host that is silent for about that long."""
    ping_ms = max(100, round(heartbeat_timeout_s * 1000 / 5))
    return [
        ("grpc.so_reuseport", 0),  # a second controller on the same port must fail, not share it
        ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
        ("grpc.keepalive_time_ms", ping_ms),
        ("grpc.keepalive_timeout_ms", 4 * ping_ms),
        ("grpc.http2.ping_timeout_ms", 4 * ping_ms),  # newer gRPC waits a minute without it
        ("grpc.http2.max_pings_without_data", 0),  # no limit
    ]


class ControllerError(Exception):
    """The controller cannot start or continue."""


class Controller:
    """The controller of one switch. `start`, then `run` until `stop` is called.

    Raises ConfigError, PipelineNotFoundError, ControllerError, StoreError or P4RuntimeError from `start`.
    """

    def __init__(
        self,
        config: Config,
        client: SwitchClient | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        switch, settings = config.switch, config.controller
        pipeline = pipelines.read(find(switch.pipeline))
        self.config = config
        self.address: str = settings.listen
        self._clock = clock
        self.notifier = Notifier()
        files = config.security
        self._security = given(files.ca, files.certificate, files.key, "ca, certificate and key under [security]")
        self._store = Store(settings.state_path)
        self.registry = Registry(
            pipeline.geometry,
            self._store,
            settings.heartbeat_timeout_s,
            quotas=Quotas(config.quotas),
            max_world_size=pipeline.max_world_size,
        )
        if client is None:
            client = Client(
                switch.p4runtime,
                switch.device_id,
                election_id=_halves(switch.election_id),
                timeout_s=min(_CALL_LIMIT_S, switch.connect_timeout_s),
                security=self._p4runtime_security(),
            )
        entry_writer = EntryWriter(client, switch, pipeline, MacTable(config, pipeline.names))
        self.reconciler = SwitchReconciler(
            entry_writer=entry_writer,
            registry=self.registry,
            store=self._store,
            clock=clock,
            notifier=self.notifier,
            address=switch.p4runtime,
        )
        terms = Terms(switch.address, switch.udp_port, settings.hello_interval_s, settings.heartbeat_interval_s)
        self._servicer = JobsServicer(
            self.registry, self.reconciler, terms, clock, self.notifier, self.sweep, _roles(self._security)
        )
        self._metrics = ControllerMetrics(self.registry, self.reconciler, self._servicer.refusals, clock)
        self._metrics_server: MetricsServer | None = None
        self._server: grpc.aio.Server | None = None
        self._stop = asyncio.Event()
        self._sweep_interval_s = settings.heartbeat_interval_s / 2
        self._awake_at = float("inf")

    async def start(self) -> None:
        """Take the port and the jobs of an earlier run, connect to the switch and prepare it, then serve.

        `address` is then the true one.
        """
        self._server = grpc.aio.server(options=_server_options(self.config.controller.heartbeat_timeout_s))
        jobs_pb2_grpc.add_JobsServicer_to_server(self._servicer, self._server)
        host, _, _ = self.address.rpartition(":")
        try:
            port = listen(
                self._server,
                self.address,
                self._security,
                insecure=self.config.security.insecure,
                advice="set ca, certificate and key under [security] in the configuration",
            )
        except RuntimeError as error:
            raise ControllerError(
                f"cannot listen on {self.address}: is another controller running there? Choose another "
                "address with --listen"
            ) from error
        self.address = f"{host}:{port}"
        try:
            self._store.open()
            self.registry.restore(self._store.jobs(), self._clock())
            await self.reconciler.connect(self.config.switch.connect_timeout_s)
            self._open_metrics()
        except BaseException:
            await self.reconciler.close()
            self._store.close()
            raise
        self.registry.record_heartbeats(self._clock())  # connecting took a while
        await self._server.start()
        event(
            _log,
            logging.INFO,
            "controller started",
            listen=self.address,
            tls=self._security is not None,
            switch=self.config.switch.p4runtime,
            pipeline=self.config.switch.pipeline,
        )

    @property
    def metrics_address(self) -> str:
        """Where the metrics are served, "" where they are not."""
        return self._metrics_server.address if self._metrics_server is not None else ""

    def _open_metrics(self) -> None:
        address, loop = self.config.controller.metrics, asyncio.get_running_loop()

        def collect() -> list[Sample]:
            scrape = self._metrics.samples()
            try:
                scraped = asyncio.run_coroutine_threadsafe(scrape, loop)
            except RuntimeError:  # the loop has ended
                scrape.close()
                return []
            try:
                return scraped.result(_SCRAPE_LIMIT_S)
            except (TimeoutError, concurrent.futures.CancelledError):
                scraped.cancel()
                return []

        if address:
            self._metrics_server = MetricsServer(address, collect, insecure=self.config.security.insecure)

    def _p4runtime_security(self) -> Security | None:
        """Return the credentials for P4Runtime. Raises ConfigError where writes would cross a network without TLS."""
        settings, address = self.config.security, self.config.switch.p4runtime
        if self._security is not None and not settings.plain_p4runtime:
            return self._security
        if not settings.insecure and not is_loopback(address):
            raise ConfigError(
                f"the switch at {address} would be written to without TLS: set ca, certificate and key under "
                "[security] in the configuration (`p4reduce certs init` makes them), without plain_p4runtime, or say "
                "--insecure"
            )
        return None

    async def run(self) -> None:
        """Serve until `stop`. Jobs continue without the controller; one started with the same state restores them."""
        reconciler = asyncio.create_task(self.reconciler.run(), name="reconciler")
        sweeper = asyncio.create_task(self._keep_sweeping(), name="sweeper")
        stopped = asyncio.create_task(self._stop.wait(), name="stopped")
        tasks: list[asyncio.Task[Any]] = [reconciler, sweeper, stopped]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises the task's error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close()

    def stop(self) -> None:
        """Ask `run` to end. Call it on the event loop."""
        self._stop.set()

    def sweep(self) -> None:
        """Drop members without heartbeats. `run` does this by itself.

        After a pause of the controller itself, give them time instead: their heartbeats may wait in its sockets.
        """
        before = self.registry.version
        now = asyncio.get_running_loop().time()
        paused_s = now - self._awake_at - self._sweep_interval_s
        if paused_s > self.config.controller.heartbeat_interval_s:
            event(_log, logging.WARNING, "controller was paused", paused_s=round(paused_s, 1), members="given time")
            self.registry.record_heartbeats(self._clock())
        self._awake_at = now
        self.registry.sweep(self._clock())
        if self.registry.version != before:
            self.notifier.notify()

    async def _keep_sweeping(self) -> None:
        self._awake_at = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(self._sweep_interval_s)
            self.sweep()

    async def _close(self) -> None:
        event(_log, logging.INFO, "controller stopped", listen=self.address)
        self._servicer.stop()
        if self._metrics_server is not None:
            await asyncio.to_thread(self._metrics_server.close)
        if self._server is not None:
            await self._server.stop(_GRACE_S)
        await self.reconciler.close()
        self._store.close()


def run_controller(config: Config, ready: Callable[[Controller], None]) -> None:
    """Run a controller until SIGINT or SIGTERM; `ready` is called once it serves. Raises as it does."""
    asyncio.run(_run(config, ready))


async def _run(config: Config, ready: Callable[[Controller], None]) -> None:
    controller = Controller(config)
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(controller.start())
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, controller, starting)
    try:
        await starting
    except asyncio.CancelledError:
        return
    ready(controller)
    await controller.run()


def _stop(controller: Controller, starting: asyncio.Future[None]) -> None:
    """Handle a signal: stop the start, or the service."""
    starting.cancel()
    controller.stop()
