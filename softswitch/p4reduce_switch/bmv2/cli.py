"""The options of simple_switch_grpc (BMv2 1.15): those of every BMv2 target, and after `--` its own.

Options that the embedded switch has nothing for are either without effect, and named in one warning, or refused by
name.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import click
import grpc

from p4reduce_runtime import logs
from p4reduce_runtime.terminal import HostPort, one_line
from p4reduce_switch.program.queues import MAX_PRIORITIES, QueueSetting
from p4reduce_switch.program.trace import PacketTrace

_packets = logging.getLogger("p4.packets")

PROGRAM: Final = "p4reduce-simple-switch"
DEFAULT_GRPC: Final = "127.0.0.1:9559"
"""BMv2's is 0.0.0.0:9559."""
LEVELS: Final = {
    "trace": "INFO",
    "debug": "INFO",
    "info": "INFO",
    "warn": "WARNING",
    "error": "ERROR",
    "off": "CRITICAL",
}
"""BMv2's levels, and Python's from which lines are logged: the switch logs nothing below INFO or above ERROR."""
PACKET_LEVELS: Final = {"trace": "TDE", "debug": "DE"}
"""The lines about each packet, by their levels, that a level of BMv2 logs."""

WITHOUT_EFFECT: Final = {
    "--thrift-port": "there is no Thrift server; P4Runtime has its commands (docs/switch/v1model.md)",
    "--nanolog": "there are no nanomsg events",
    "--max-port-count": "there is no such limit",
}
TARGET_WITHOUT_EFFECT: Final = {
    "--max-mc-groups": "there is no such limit",
    "--max-l1-entries": "there is no such limit",
    "--max-l2-entries": "there is no such limit",
}
REFUSED: Final = {
    "--notifications-addr": "digests and idle timeouts go over P4Runtime, not nanomsg",
    "--debugger-addr": "there is no debugger",
    "--packet-in": "frames come from interfaces",
    "--use-files": "frames come from interfaces",
    "--restore-state": "the state cannot be restored from a file",
}
REFUSED_FLAGS: Final = {"--debugger": "there is no debugger"}
TARGET_REFUSED: Final = {
    "--dp-grpc-server-addr": "frames come from interfaces",
    "--load-modules": "it runs no C++ externs",
}
TARGET_REFUSED_FLAGS: Final = {"--disable-swap": "a controller can always set another program"}

JSON_VERSION: Final = "2.24"
"""BMv2 1.15's; of the versions 2.x the loader looks at no minor number."""

_Command = Callable[..., Any]


def _others(without_effect: dict[str, str], refused: dict[str, str], flags: dict[str, str]) -> Callable[[Any], Any]:
    """Add the options that have no effect, or are refused."""

    def refuse(_context: click.Context, option: click.Parameter, value: object) -> None:
        if value:
            raise click.UsageError(f"{option.opts[0]} is not supported: {({**refused, **flags})[option.opts[0]]}")

    def note(context: click.Context, option: click.Parameter, value: object) -> None:
        if value is not None:
            context.ensure_object(list).append(f"{option.opts[0]} has no effect: {without_effect[option.opts[0]]}")

    def add(command: _Command) -> _Command:
        for name, reason in without_effect.items():
            command = click.option(name, expose_value=False, callback=note, help=f"No effect: {reason}.")(command)
        for name in refused:
            command = click.option(name, expose_value=False, callback=refuse, hidden=True)(command)
        for name in flags:
            command = click.option(name, expose_value=False, callback=refuse, hidden=True, is_flag=True)(command)
        return command

    return add


@click.command(
    PROGRAM,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="After `--` come the options of the target; `-- --help` lists them.",
)
@click.argument("config", required=False, type=click.Path(path_type=Path), metavar="[PROGRAM.json]")
@click.option(
    "-i", "--interface", "interfaces", multiple=True, metavar="PORT@DEVICE", help="A network device as a switch port."
)
@click.option(
    "--pcap",
    is_flag=False,
    flag_value=".",
    metavar="[FOLDER]",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Record frames in DEVICE_in.pcap and DEVICE_out.pcap, in this folder or the current one.",
)
@click.option("--device-id", type=click.IntRange(min=0), default=0, show_default=True, help="P4Runtime device id.")
@click.option("--no-p4", is_flag=True, help="Start without a program.")
@click.option("--log-console", is_flag=True, help="Log to stdout.")
@click.option("--log-file", metavar="NAME", help="Log to NAME.txt.")
@click.option(
    "-L", "--log-level", type=click.Choice([*LEVELS]), default="trace", show_default=True, help="The lowest level."
)
@click.option("--log-flush", is_flag=True, help="Write each line of the log at once: always done.")
@click.option("--log-file-max-size", type=click.IntRange(min=1), default=5 << 20, show_default=True, metavar="BYTES")
@click.option("--log-file-max-files", type=click.IntRange(min=1), default=3, show_default=True, metavar="FILES")
@click.option("--dump-packet-data", type=click.IntRange(min=0), default=0, metavar="BYTES", help="Log frames.")
@click.version_option(None, "-v", "--version", package_name="p4reduce", message="p4reduce %(version)s")
@click.version_option(
    JSON_VERSION, "--json-version", message="%(version)s", help="Show the newest version of BMv2's JSON that is known."
)
@_others(WITHOUT_EFFECT, REFUSED, REFUSED_FLAGS)
@click.pass_context
def general(context: click.Context, /, **options: Any) -> dict[str, Any]:
    """Run the embedded switch with the command line of BMv2's simple_switch_grpc, until interrupted."""
    return {**options, "notes": context.obj or []}


def grpc_address(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return HOST:PORT or unix:PATH."""
    return value if value is None or value.startswith("unix:") else HostPort().convert(value, option, context)


def _queue_settings(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[QueueSetting, ...]:
    """Return the settings; each is for all queues, for those of a port, or for one queue."""
    found = []
    for value in values:
        match = re.fullmatch(r"(\d{1,9})(?:@(\d{1,3})(?:\.([0-7]))?)?", value)
        if match is None or int(match[2] or 0) > 511:
            raise click.BadParameter(f"{value!r} is not like {option.metavar}: 100, 100@3 or 100@3.7")
        found.append(QueueSetting(*(None if text is None else int(text) for text in match.groups())))  # type: ignore[arg-type]
    return tuple(found)


@click.command(f"{PROGRAM} --", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--grpc-server-addr",
    metavar="HOST:PORT",
    callback=grpc_address,
    help=f"Where P4Runtime is served.  [default: {DEFAULT_GRPC}; 0.0.0.0:9559 in BMv2]",
)
@click.option("--grpc-server-ssl", is_flag=True, help="Serve P4Runtime over TLS.")
@click.option("--grpc-server-cacert", metavar="FILE", help="The authority of clients' certificates.")
@click.option("--grpc-server-cert", metavar="FILE", help="The certificate of the server.")
@click.option("--grpc-server-key", metavar="FILE", help="Its private key.")
@click.option("--grpc-server-with-client-auth", is_flag=True, help="Clients need a certificate.")
@click.option("--cpu-port", type=click.IntRange(1, 511), help="The port that leads to the controller.  [default: none]")
@click.option(
    "--drop-port", type=click.IntRange(0, 511), default=511, show_default=True, help="The port of dropped packets."
)
@click.option(
    "--priority-queues",
    type=click.IntRange(1, MAX_PRIORITIES),
    default=1,
    show_default=True,
    help="Egress queues of each port; the field priority chooses one, and the largest is served first.",
)
@click.option(
    "--queue-rate",
    "queue_rates",
    multiple=True,
    metavar="PPS[@PORT[.PRIORITY]]",
    callback=_queue_settings,
    help="Packets a second of a queue, as set_queue_rate of simple_switch_CLI; 0: no limit. Not in BMv2.",
)
@click.option(
    "--queue-depth",
    "queue_depths",
    multiple=True,
    metavar="PACKETS[@PORT[.PRIORITY]]",
    callback=_queue_settings,
    help="Packets that a queue holds, as set_queue_depth of simple_switch_CLI; 64 by default. Not in BMv2.",
)
@_others(TARGET_WITHOUT_EFFECT, TARGET_REFUSED, TARGET_REFUSED_FLAGS)
@click.pass_context
def target(context: click.Context, /, **options: Any) -> dict[str, Any]:
    """Options of the target simple_switch_grpc."""
    return {**options, "target_notes": context.obj or []}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. Exits with status 1 when the switch cannot start, 2 over wrong usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    try:
        options = _parsed(general, words[:end], target, "after")
        options |= _parsed(target, words[end + 1 :], general, "before")
        _run(SimpleNamespace(**options))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except KeyboardInterrupt:  # before the switch runs: then a signal ends it with status 0
        sys.exit(130)


def _parsed(command: click.Command, words: Sequence[str], other: click.Command, where: str) -> dict[str, Any]:
    """Return the options, or end after --help and --version."""
    try:
        found = command.main(list(words), prog_name=command.name, standalone_mode=False)
    except click.NoSuchOption as error:
        if any(error.option_name in parameter.opts for parameter in other.params):
            raise click.UsageError(f"{error.option_name} stands {where} --") from error
        raise
    if not isinstance(found, dict):
        raise click.exceptions.Exit(int(found or 0))
    return found


def _run(given: SimpleNamespace) -> None:
    """Start the switch with BMv2's options, and run it."""
    if given.config is None and not given.no_p4:
        raise click.UsageError("name the JSON that p4c-bm2-ss wrote, or start without a program by --no-p4")
    if given.config is not None and given.no_p4:
        given.notes.append(f"{given.config} is not used: --no-p4 was given")
    for setting in (*given.queue_rates, *given.queue_depths):
        if (setting.priority or 0) >= given.priority_queues:
            queue = f"{setting.port}.{setting.priority}"
            raise click.UsageError(f"there is no queue {queue}: a port has {given.priority_queues} (--priority-queues)")
    if given.log_console and given.log_file is not None:
        raise click.UsageError("--log-console and --log-file are exclusive")
    _configure_logs(given)
    for note in (*given.notes, *given.target_notes):
        click.echo(f"Warning: {note}", err=True)

    from p4reduce_switch.ports.capture import Capture
    from p4reduce_switch.program import QueueSettings, TargetOptions
    from p4reduce_switch.run import SwitchError, SwitchOptions, run_switch

    address, capture = given.grpc_server_addr or DEFAULT_GRPC, Capture(given.pcap, given.dump_packet_data)
    logs_given = given.log_console or given.log_file is not None
    options = SwitchOptions(
        listen=None,
        interfaces=given.interfaces,
        p4runtime=address,
        device_id=given.device_id,
        cpu_port=given.cpu_port,
        insecure=True,
        gso="off",  # what leaves is one frame each, as from BMv2: for taps, and for BMv2 at the other end
        program=None if given.no_p4 else given.config,
        target=TargetOptions(given.drop_port, queues=bool(given.queue_rates or given.queue_depths)),
        queues=QueueSettings(given.priority_queues, given.queue_rates, given.queue_depths),
        queue_service=True,
        credentials=_credentials(given),
        capture=capture if capture != Capture() else None,
        on_log=_message if logs_given else None,
        on_trace=partial(_log_packet, PACKET_LEVELS[given.log_level])
        if logs_given and given.log_level in PACKET_LEVELS
        else None,
    )
    try:
        run_switch(options, ready=lambda _: _say(f"Server listening on {address}"))
    except SwitchError as error:
        raise click.ClickException(one_line(error)) from error


def _say(line: str) -> None:
    """Print a line, unless stdout is a pipe without a reader."""
    try:
        print(line, flush=True)
    except OSError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Discard what is written to stdout from now on: its reader has closed it, and the switch runs on."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


class _Console(logging.StreamHandler[Any]):
    """Logs to stdout until that is closed."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Called by logging over a record that cannot be written."""
        if isinstance(sys.exc_info()[1], OSError):
            _discard_stdout()
        else:
            super().handleError(record)


def _configure_logs(given: SimpleNamespace) -> None:
    """Log to stdout or to a file; without both only warnings, to stderr."""
    file, level = given.log_file, LEVELS[given.log_level]
    handler: logging.StreamHandler[Any]
    if file is not None:
        size, files = given.log_file_max_size, given.log_file_max_files
        try:
            handler = RotatingFileHandler(f"{file}.txt", maxBytes=size, backupCount=files)
        except OSError as error:
            raise click.ClickException(f"cannot write {file}.txt: {error.strerror}") from error
    elif given.log_console:
        handler = _Console(sys.stdout)
    else:
        handler, level = logging.StreamHandler(sys.stderr), "WARNING"
    handler.setFormatter(_Line())
    logging.basicConfig(level=level, handlers=[handler])


def _message(text: str) -> None:
    """Log what the program says with log_msg."""
    logging.getLogger("p4").info("%s", text)


def _log_packet(levels: str, trace: PacketTrace) -> None:
    """Log the lines of these levels that BMv2 logs for a packet."""
    from p4reduce_switch.trace.bmv2 import log_lines

    for level, text in log_lines(trace):
        if level in levels:
            _packets.info("%s", text, extra={"bmv2_level": level})


class _Line(logs.PlainLine):
    """A line about a packet as BMv2 writes it, others as p4reduce does."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record in one line; BMv2's keys and entries have more."""
        level = getattr(record, "bmv2_level", None)
        if level is None:
            return super().format(record)
        clock = f"{time.strftime('%H:%M:%S', time.localtime(record.created))}.{int(record.msecs):03}"
        return f"[{clock}] [bmv2] [{level}] [thread {threading.get_native_id()}] {record.getMessage()}"


def _credentials(given: SimpleNamespace) -> grpc.ServerCredentials | None:
    """Return gRPC's credentials for --grpc-server-ssl; None without it."""
    certificate, key, authority = given.grpc_server_cert, given.grpc_server_key, given.grpc_server_cacert
    if not given.grpc_server_ssl:
        if authority or certificate or key or given.grpc_server_with_client_auth:
            raise click.UsageError("certificates are given, but not --grpc-server-ssl")
        return None
    if certificate is None or key is None:
        raise click.UsageError("--grpc-server-ssl takes --grpc-server-cert and --grpc-server-key")
    if given.grpc_server_with_client_auth and authority is None:
        raise click.UsageError("--grpc-server-with-client-auth takes --grpc-server-cacert")
    roots = None if authority is None else _read(authority)
    pair = (_read(key), _read(certificate))
    _check(certificate, key, authority)
    return grpc.ssl_server_credentials([pair], roots, require_client_auth=given.grpc_server_with_client_auth)


def _check(certificate: str, key: str, authority: str | None) -> None:
    """End with an error unless these are PEM files that gRPC takes: it does not say what is wrong with them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        _fail(f"{certificate} and {key} are no PEM certificate and its private key, without a password: {error}")
    if authority is None:
        return
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        _fail(f"{authority} holds no PEM certificate of an authority: {error}")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        _fail(f"cannot read {path}: {error.strerror}")


def _fail(message: str) -> NoReturn:
    raise click.ClickException(message)
