"""The switch process: ports, program and P4Runtime server put together, until a signal."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

import grpc
from msgspec.structs import replace

from p4reduce_runtime import pipeline_folders
from p4reduce_runtime.logs import event
from p4reduce_runtime.metrics_server import MetricsServer
from p4reduce_runtime.p4runtime.schema import parse_p4info
from p4reduce_runtime.security import given
from p4reduce_runtime.settings import ConfigError
from p4reduce_runtime.underlay import AGGREGATION_PORT, UPLINK_PORT
from p4reduce_switch.metrics import samples
from p4reduce_switch.p4runtime import RequestError, Server
from p4reduce_switch.ports import Gso, PortError, Ports
from p4reduce_switch.ports.capture import Capture, CapturedPorts
from p4reduce_switch.ports.ethernet import EthernetPorts, LinkStates, parse_interface
from p4reduce_switch.ports.udp import Address, UdpUnderlay
from p4reduce_switch.program import PacketTrace, Program, ProgramError, QueueSettings, TargetOptions
from p4reduce_switch.program.load import DEFAULT_TARGET
from p4reduce_switch.program.queues import DEFAULT_QUEUES
from p4reduce_switch.program.trace import TraceHandler
from p4reduce_switch.switch import DEFAULT_CPU_PORT, Switch, Watch
from p4reduce_switch.trace.formats import FORMATS

_log = logging.getLogger(__name__)

DEFAULT_LISTEN = f"127.0.0.1:{AGGREGATION_PORT}"
SWITCH_INTERVAL_S = 0.0005
"""Seconds that the P4Runtime server's threads may keep the interpreter when the data plane comes back to it."""
MOST_THREADS = 64
"""The largest number of threads that the option takes."""
DEFAULT_P4RUNTIME = "127.0.0.1:9559"
P4INFO_ENDINGS = (".p4info.txtpb", ".p4info.txt")


class SwitchError(Exception):
    """The switch cannot start; the message says what to do."""


@dataclass(frozen=True)
class SwitchOptions:
    """Options of `p4reduce switch run` and `p4reduce-simple-switch`. With interfaces there is no UDP underlay."""

    pipeline: str | None = None
    """The name or folder of a compiled pipeline, or a BMv2 JSON beside its P4Info; None: wait for a controller's."""
    listen: str | None = DEFAULT_LISTEN
    """HOST:PORT of the UDP underlay; None: without interfaces the switch has no ports."""
    interfaces: tuple[str, ...] = ()
    """The interfaces, in BMv2's form: "1@veth1"."""
    p4runtime: str = DEFAULT_P4RUNTIME
    device_id: int = 1
    cpu_port: int | None = DEFAULT_CPU_PORT
    """The number of the CPU port; None: no packet-in and no packet-out."""
    tls_ca: str | None = None
    """The authority that certifies controllers for P4Runtime over TLS, with `tls_certificate` and `tls_key`."""
    tls_certificate: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    """Serve P4Runtime beyond loopback without TLS, and metrics too."""
    gso: str = "auto"
    """Name of one of `Gso`, in small letters."""
    metrics: str | None = None
    """HOST:PORT at which Prometheus gets metrics; None: nowhere."""
    program: Path | None = None
    """The path of a BMv2 JSON to run without P4Info until a controller sets a pipeline."""
    target: TargetOptions = DEFAULT_TARGET
    queues: QueueSettings = DEFAULT_QUEUES
    """The egress queues of programs whose packets pass queues."""
    queue_service: bool = False
    """Let clients set their rates and depths."""
    credentials: grpc.ServerCredentials | None = None
    """The credentials for P4Runtime over TLS, for each client that they admit; instead of `tls_ca` and the next two."""
    capture: Capture | None = None
    """The frames on interfaces that are recorded."""
    on_log: Callable[[str], None] | None = None
    """Receives the program's messages (log_msg)."""
    trace: str | None = None
    """Trace every frame to stdout in this format: text, json or bmv2."""
    on_trace: TraceHandler | None = None
    """Receives the trace of every frame."""
    threads: int = 1
    """Number of threads that share the frames of the UDP underlay; 0: one less than there are cores."""
    uplink: str | None = None
    """HOST:PORT at which the parent switch listens: the peer at port UPLINK_PORT; None: there is no parent."""


def print_line(line: str) -> None:
    """Print a line without buffering."""
    print(line, flush=True)


def run_switch(options: SwitchOptions, ready: Callable[[str], None] = print_line) -> None:
    """Run a switch until SIGINT or SIGTERM. `ready` gets one line when all of it answers.

    Raises SwitchError when an address is in use or reachable without TLS, an interface is missing, or the pipeline is
    not one.
    Handles signals only in the main thread; elsewhere the process must end by other means.
    """
    try:
        with ExitStack() as stack:
            spare = min(MOST_THREADS, max(1, len(os.sched_getaffinity(0)) - 1)) if not options.interfaces else 1
            target = replace(options.target, threads=options.threads or spare)
            switch = Switch(options.device_id, options.cpu_port, options.on_log, target, options.queues)
            stack.callback(switch.close)
            ports, words = _ports(options, switch)
            switch.add_ports(ports)
            if isinstance(ports, EthernetPorts):
                links = LinkStates(ports.interfaces, switch.port_changed)
                stack.callback(links.close)
                links.start()
            switch.prepare()
            on_trace = options.on_trace
            if options.trace is not None:
                on_trace = partial(_print_trace, FORMATS[options.trace])
            if on_trace is not None:
                switch.watch(Watch(on_trace))
            security = given(
                options.tls_ca, options.tls_certificate, options.tls_key, "--tls-ca, --tls-certificate and --tls-key"
            )
            server = Server(
                switch,
                options.p4runtime,
                security=security,
                insecure=options.insecure,
                credentials=options.credentials,
                queue_service=options.queue_service,
            )
            stack.callback(server.stop)
            if options.pipeline is not None:
                _load(server, options.pipeline)
            if options.program is not None:
                switch.install(_program(options.program, switch))
            server.start()
            served = ""
            if options.metrics is not None:
                metrics = MetricsServer(options.metrics, lambda: samples(switch, server), insecure=options.insecure)
                stack.callback(metrics.close)
                served = f"; metrics {metrics.address}"
            stack.enter_context(_stopped_by_signals(switch))
            host = options.p4runtime.rpartition(":")[0]
            pipeline = options.pipeline or "none yet, a controller brings it"
            ready(
                f"switch {options.device_id} ready: {words}; P4Runtime {host}:{server.port}; "
                f"pipeline {pipeline}{served}"
            )
            event(_log, logging.INFO, "switch started", device=options.device_id, p4runtime=f"{host}:{server.port}")
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            switch.run()
            for (port, priority), dropped in switch.queues.drops().items():
                event(_log, logging.INFO, "queue was full", port=port, priority=priority, dropped=dropped)
            event(_log, logging.INFO, "switch stopped", device=options.device_id)
    except (PortError, ConfigError) as error:
        raise SwitchError(str(error)) from error


def _print_trace(shown: Callable[[PacketTrace], Iterator[str]], trace: PacketTrace) -> None:
    with suppress(OSError):  # stdout was closed: the switch goes on without it
        for line in shown(trace):
            print_line(line)


def _ports(options: SwitchOptions, switch: Switch) -> tuple[Ports, str]:
    """Return the ports and their description for the log."""
    gso, threads = Gso[options.gso.upper()], switch.threads
    if not options.interfaces and options.listen is not None:
        uplink = None if options.uplink is None else _address(options.uplink)
        listen, cpu_port, in_use = _address(options.listen), switch.cpu_port, switch.ports_in_use
        underlay = UdpUnderlay(listen, uplink=uplink, cpu_port=cpu_port, in_use=in_use, gso=gso, threads=threads)
        words = "UDP {}:{}".format(*underlay.address)
        return underlay, words if uplink is None else f"{words}, uplink {UPLINK_PORT}@{options.uplink}"
    if options.uplink is not None:
        raise PortError(
            "--uplink is for UDP peers; among interfaces the uplink is a port like the others: give it by -i"
        )
    if threads > 1:
        raise PortError("--threads divides the frames of UDP peers: leave it out with interfaces")
    interfaces: dict[int, str] = {}
    for text in options.interfaces:
        port, name = parse_interface(text)
        if port in interfaces or name in interfaces.values() or port in (options.cpu_port, options.target.drop_port):
            raise PortError(f"{text}: this port or interface is given twice, or it is the CPU port or the drop port")
        interfaces[port] = name
    listed = ", ".join(f"{port}@{name}" for port, name in interfaces.items())
    if options.capture is not None:
        return CapturedPorts(interfaces, options.capture), f"interfaces {listed}"
    return EthernetPorts(interfaces, gso), f"interfaces {listed}"


def _address(text: str) -> Address:
    """Return the IPv4 address and the port of HOST:PORT. Raises PortError for a host that has none."""
    host, _, number = text.rpartition(":")
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: it is no host name at all
        raise PortError(f"{host!r} in {text} has no IPv4 address ({error}): name a host that has one") from None
    return str(found[0][4][0]), int(number)


def _program(path: Path, switch: Switch) -> Program:
    try:
        return switch.load(path.read_bytes())
    except OSError as error:
        raise SwitchError(f"the program {path} cannot be read: {error.strerror}") from error
    except ProgramError as error:
        raise SwitchError(f"the program {path} cannot be loaded: {error}") from error


def _load(server: Server, name: str) -> None:
    program, p4info = _files(name)
    try:
        parsed = parse_p4info(p4info.read_text(encoding="utf-8"))
        server.set_pipeline(parsed, program.read_bytes())
    except (RequestError, ValueError) as error:
        raise SwitchError(f"the pipeline {program} cannot be loaded: {error}") from error
    except OSError as error:
        raise SwitchError(f"the pipeline {program} cannot be read: {error}") from error


def _files(name: str) -> tuple[Path, Path]:
    """The BMv2 JSON and the P4Info of a pipeline: a name or folder, or a JSON, whose P4Info has the same stem."""
    if name.endswith(".p4"):
        stem = name.removesuffix(".p4")
        raise SwitchError(
            f"compile {name} first: p4c-bm2-ss --p4runtime-files {stem}{P4INFO_ENDINGS[0]} -o {stem}.json {name}; "
            f"then give {stem}.json"
        )
    if not name.endswith(".json"):
        folder = pipeline_folders.find(name)
        return folder / pipeline_folders.PROGRAM, folder / pipeline_folders.P4INFO
    program = Path(name).expanduser()
    expected = [program.with_suffix(ending) for ending in P4INFO_ENDINGS]
    if not program.is_file():
        raise SwitchError(f"there is no file {program}; write it with: p4c-bm2-ss -o {program} PROGRAM.p4")
    found = [path for path in expected if path.is_file()]
    if not found:
        raise SwitchError(
            f"there is no P4Info beside {program}; write it with: "
            f"p4c-bm2-ss --p4runtime-files {expected[0]} -o {program} PROGRAM.p4"
        )
    return program, found[0]


@contextmanager
def _stopped_by_signals(switch: Switch) -> Iterator[None]:
    """Lets SIGINT and SIGTERM end `Switch.run`; puts the old handlers back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        switch.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    woken_before = signal.set_wakeup_fd(switch.wake_descriptor, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken_before)
        for number, handler in before.items():
            signal.signal(number, handler)
