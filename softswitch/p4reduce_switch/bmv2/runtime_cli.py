"""`p4reduce-simple-switch-cli`: the commands of BMv2's simple_switch_CLI that P4Runtime has no message for."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import grpc

from p4reduce_switch.bmv2.cli import DEFAULT_GRPC, grpc_address
from p4reduce_switch.queues import queues_pb2 as q
from p4reduce_switch.queues import queues_pb2_grpc

PROGRAM: Final = "p4reduce-simple-switch-cli"
DEADLINE_S: Final = 10.0
PROMPT: Final = "RuntimeCmd: "
COMMANDS: Final = {
    "set_queue_rate": "set_queue_rate <rate_pps> [<egress_port> [<priority>]]",
    "set_queue_depth": "set_queue_depth <nb_pkts> [<egress_port> [<priority>]]",
}
_LARGEST: Final = {"set_queue_rate": (1 << 64) - 1, "set_queue_depth": (1 << 32) - 1}


class _NotConnectedError(click.ClickException):
    """No command can be carried out."""


@click.command(PROGRAM, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("command", nargs=-1, metavar="[COMMAND]")
@click.option(
    "--grpc-addr",
    metavar="HOST:PORT",
    default=DEFAULT_GRPC,
    show_default=True,
    callback=grpc_address,
    help="Where the switch serves P4Runtime.",
)
@click.option("--ssl", is_flag=True, help="Connect over TLS.")
@click.option("--cacert", metavar="FILE", type=click.Path(path_type=Path), help="The authority of its certificate.")
@click.option("--cert", metavar="FILE", type=click.Path(path_type=Path), help="A certificate for the switch to check.")
@click.option("--private-key", metavar="FILE", type=click.Path(path_type=Path), help="The private key of that.")
@click.option("--server-name", metavar="NAME", help="The name in its certificate.  [default: HOST]")
def main(command: tuple[str, ...], grpc_addr: str, server_name: str | None, **tls: Any) -> None:
    """Carry out COMMAND, or each line of stdin, on a running p4reduce-simple-switch.

    \b
    set_queue_rate <rate_pps> [<egress_port> [<priority>]]
    set_queue_depth <nb_pkts> [<egress_port> [<priority>]]

    Exits with status 1 when a command fails; those after it are carried out.
    """  # noqa: D301
    if command and not "".join(command).strip():
        raise click.UsageError("COMMAND is empty")
    options: list[tuple[str, object]] = [("grpc.enable_http_proxy", 0)]
    if server_name is not None:
        options.append(("grpc.ssl_target_name_override", server_name))
    credentials = _credentials(**tls)
    channel = (
        grpc.insecure_channel(grpc_addr, options=options)
        if credentials is None
        else grpc.secure_channel(grpc_addr, credentials, options=options)
    )
    failed = False
    with channel:
        stub = queues_pb2_grpc.EgressQueuesStub(channel)
        for line in [" ".join(command)] if command else _lines():
            try:
                _carry_out(line, stub, grpc_addr)
            except _NotConnectedError:
                raise
            except click.ClickException as error:
                error.show()
                failed = True
    sys.exit(1 if failed else 0)


def _lines() -> Iterator[str]:
    """Yield the lines of stdin that are not empty; at a terminal after a prompt. Raises UsageError."""
    if sys.stdin is None:  # closed, as by <&-
        raise click.UsageError("there is neither a COMMAND nor a stdin to read lines from")
    lines: Iterable[str] = iter(_prompted, "") if sys.stdin.isatty() else sys.stdin
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            yield line


def _prompted() -> str:
    click.echo(PROMPT, nl=False)
    return sys.stdin.readline()


def _carry_out(line: str, stub: queues_pb2_grpc.EgressQueuesStub, address: str) -> None:
    """Send the command of one line to the switch. Raises ClickException with its usage, or the switch's answer."""
    name, *words = line.split()
    usage = COMMANDS.get(name)
    if usage is None:
        raise click.ClickException(
            f"{name}: there are only {' and '.join(COMMANDS)}; docs/switch/v1model.md has the other commands of "
            "simple_switch_CLI for p4runtime-shell"
        )
    if not 1 <= len(words) <= 3 or not all(re.fullmatch(r"[0-9]{1,20}", word) for word in words):
        raise click.ClickException(f"{line.strip()}: expected {usage}, in decimal numbers from 0")
    value, *where = map(int, words)
    if value > _LARGEST[name] or any(number >= 1 << 32 for number in where):
        raise click.ClickException(f"{line.strip()}: the number is too large")
    queues = q.Queues(**dict(zip(("port", "priority"), where, strict=False)))
    try:
        if name == "set_queue_rate":
            stub.SetRate(q.SetRateRequest(queues=queues, packets_per_second=value), timeout=DEADLINE_S)
        else:
            stub.SetDepth(q.SetDepthRequest(queues=queues, packets=value), timeout=DEADLINE_S)
    except grpc.RpcError as error:
        code, details = error.code(), error.details()
        if code == grpc.StatusCode.UNAVAILABLE:
            raise _NotConnectedError(f"no switch answers at {address} (--grpc-addr, --ssl): {details}") from error
        if code == grpc.StatusCode.UNIMPLEMENTED:
            raise _NotConnectedError(f"at {address} is no p4reduce-simple-switch, or an older one") from error
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            raise _NotConnectedError(f"the switch at {address} did not answer within {DEADLINE_S:g} s") from error
        raise click.ClickException(f"{line.strip()}: {details}") from error


def _credentials(
    *, ssl: bool, cacert: Path | None, cert: Path | None, private_key: Path | None
) -> grpc.ChannelCredentials | None:
    """Return gRPC's credentials for --ssl; None without it."""
    files = (cacert, private_key, cert)
    if not ssl:
        if any(files):
            raise click.UsageError("certificates are given, but not --ssl")
        return None
    if (cert is None) != (private_key is None):
        raise click.UsageError("--cert and --private-key belong together")
    try:
        return grpc.ssl_channel_credentials(*(None if file is None else file.read_bytes() for file in files))
    except OSError as error:
        raise click.ClickException(f"cannot read {error.filename}: {error.strerror}") from error


if __name__ == "__main__":
    main()
