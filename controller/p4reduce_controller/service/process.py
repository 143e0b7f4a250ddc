"""The controller's process: prepares the switches, serves jobs, and writes their entries."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import grpc

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_controller.config import Config, SwitchConfig
from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.registry.tree import Tree, TreeSwitch
from p4reduce_controller.service import request_guard
from p4reduce_controller.service.metrics import ControllerMetrics
from p4reduce_controller.service.servicer import JobsServicer
from p4reduce_controller.service.store import Store
from p4reduce_controller.switches import pipeline as pipelines
from p4reduce_controller.switches.entry_writer import EntryWriter
from p4reduce_controller.switches.mac_table import MacTable
from p4reduce_controller.switches.pipeline import Pipeline
from p4reduce_controller.switches.reconciler import Notifier, Switches, SwitchReconciler
from p4reduce_runtime.logs import event
from p4reduce_runtime.metrics import Sample
from p4reduce_runtime.metrics_server import MetricsServer
from p4reduce_runtime.p4runtime.errors import SwitchUnreachableError
from p4reduce_runtime.pipeline_folders import find
from p4reduce_runtime.security import CONTROLLER, WORKER, Security, given, is_loopback, listen
from p4reduce_runtime.settings import ConfigError
from p4reduce_runtime.waiting_calls import WaitingCalls, connection_options

_log = logging.getLogger(__name__)

_GRACE_S = 1.0
_CALL_LIMIT_S = 5.0  # of one P4Runtime call
_MAX_REQUEST_BYTES = 64 << 10
_MAX_CALLS_OF_CONNECTION = 1024  # clients of one process share a connection, and each rank keeps one or two calls open
_SCRAPE_LIMIT_S = 4.0  # longer than the switch is waited for


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
        *connection_options(_MAX_CALLS_OF_CONNECTION),
    ]


def _common_geometry(geometries: Mapping[str, SwitchGeometry]) -> SwitchGeometry:
    """Return the geometry of all switches, with the slots of the smallest. Raises ConfigError where frames differ."""
    smallest = min(geometries.values(), key=lambda geometry: geometry.slots)
    shapes = {(geometry.columns, geometry.block_words) for geometry in geometries.values()}
    if len(shapes) > 1:
        listed = ", ".join(f"{name} {each.columns} x {each.block_words}" for name, each in sorted(geometries.items()))
        raise ConfigError(
            f"the switches' pipelines have frames of different shapes (columns x words): {listed}; use pipelines of "
            "one shape"
        )
    return smallest


class ControllerError(Exception):
    """The controller cannot start or continue."""


class Controller:
    """The controller of one tree of switches, or several. `start`, then `run` until `stop` is called.

    Raises ConfigError, PipelineNotFoundError, ControllerError, StoreError or P4RuntimeError from `start`.
    """

    def __init__(
        self, config: Config, clients: Mapping[str, Client] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clients` are of the switches by name, by default P4Runtime's."""
        settings = config.controller
        pipeline_of = {
            switch.name: pipelines.read(find(switch.pipeline), switch.tofino_server) for switch in config.switches
        }
        tree = Tree(TreeSwitch(switch, pipeline_of[switch.name].max_children) for switch in config.switches)
        self.config = config
        self.address: str = settings.listen
        self._clock = clock
        self.notifier = Notifier()
        files = config.security
        self._security = given(files.ca, files.certificate, files.key, "ca, certificate and key under [security]")
        self._store = Store(settings.state_path)
        self.registry = Registry(
            _common_geometry({name: pipeline.geometry for name, pipeline in pipeline_of.items()}),
            self._store,
            settings.heartbeat_timeout_s,
            quotas=config.quotas,
            tree=tree,
        )
        self.switches = Switches(
            self._reconciler(
                switch, pipeline_of[switch.name], clients[switch.name] if clients is not None else self._client(switch)
            )
            for switch in config.switches
        )
        roles = frozenset[str]() if self._security is None else frozenset({CONTROLLER, WORKER})
        self._servicer = JobsServicer(self.registry, self.switches, settings, clock, self.notifier, self.sweep, roles)
        self._metrics = ControllerMetrics(self.registry, self.switches, self._servicer.refusals, clock)
        self._metrics_server: MetricsServer | None = None
        self._server: grpc.aio.Server | None = None
        self._stop = asyncio.Event()
        self._sweep_interval_s = settings.heartbeat_interval_s / 2
        self._awake_at = float("inf")

    def _client(self, switch: SwitchConfig) -> Client:
        number = switch.election_id
        return Client(
            switch.p4runtime,
            switch.device_id,
            election_id=None if isinstance(number, str) else (number >> 64, number & (1 << 64) - 1),
            timeout_s=min(_CALL_LIMIT_S, switch.connect_timeout_s),
            security=self._p4runtime_security(switch.p4runtime),
        )

    def _reconciler(self, switch: SwitchConfig, pipeline: Pipeline, client: Client) -> SwitchReconciler:
        return SwitchReconciler(
            entry_writer=EntryWriter(client, switch, pipeline, MacTable(self.config, switch, pipeline.names)),
            registry=self.registry,
            store=self._store,
            clock=self._clock,
            notifier=self.notifier,
            address=switch.p4runtime,
            name=switch.name,
        )

    async def start(self) -> None:
        """Take the port and the jobs of an earlier run, connect to the switches and prepare them, then serve.

        `address` is then the true one. If any switch is reached in time, `run` goes on trying to reach the others.
        """
        self._server = grpc.aio.server(options=_server_options(self.config.controller.heartbeat_timeout_s))
        self._waiting = WaitingCalls(request_guard.MAX_WAITING)
        self._server.add_generic_rpc_handlers([request_guard.generic_handler(self._servicer, self._waiting)])
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
            await self._connect()
            self._open_metrics()
        except BaseException:
            await self.switches.close()
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
            switch=", ".join(switch.p4runtime for switch in self.config.switches),
            pipeline=", ".join(sorted({switch.pipeline for switch in self.config.switches})),
        )

    async def _connect(self) -> None:
        """Raise P4RuntimeError if no switch is reached in time, or one refuses what it is asked."""
        reconcilers = self.switches.by_name
        found = await asyncio.gather(
            *(reconcilers[switch.name].connect(switch.connect_timeout_s) for switch in self.config.switches),
            return_exceptions=True,
        )
        errors = [error for error in found if error is not None]
        for error in errors:
            if len(errors) == len(found) or not isinstance(error, SwitchUnreachableError):
                raise error
            event(_log, logging.WARNING, "switch not reached", cause=str(error))

    @property
    def metrics_address(self) -> str:
        """HOST:PORT at which the metrics are served, "" where they are not."""
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

    def _p4runtime_security(self, address: str) -> Security | None:
        """Return the credentials for P4Runtime. Raises ConfigError where writes would cross a network without TLS."""
        settings = self.config.security
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
        reconcilers = [
            asyncio.create_task(reconciler.run(), name=f"reconciler of {name}")
            for name, reconciler in self.switches.by_name.items()
        ]
        sweeper = asyncio.create_task(self._keep_sweeping(), name="sweeper")
        stopped = asyncio.create_task(self._stop.wait(), name="stopped")
        tasks: list[asyncio.Task[Any]] = [*reconcilers, sweeper, stopped]
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
            self._waiting.close()
        await self.switches.close()
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
    starting.cancel()
    controller.stop()
