"""`p4reduce switch trace`: asks a running switch for traces, and prints them."""

from __future__ import annotations

import ipaddress
import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import click
import grpc
import msgspec

from p4reduce_runtime.security import SWITCH, Security, dial, given
from p4reduce_switch.program import PacketTrace
from p4reduce_switch.trace import trace_pb2 as pb
from p4reduce_switch.trace import trace_pb2_grpc
from p4reduce_switch.trace.formats import FORMATS

IPV4: Final = (pb.Bytes(offset=12, value=b"\x08\x00"), pb.Bytes(offset=14, value=b"\x45"))
STARTS_WITHIN_S: Final = 120.0
"""The code that traces the largest of p4c's samples takes half a minute to compile alone on a core."""
QUIET_S: Final = 0.5
"""Seconds without a frame after which a page is written, once all that it needs was recorded."""
ADDRESSES, PORTS = 26, 34
"""Offsets of the source in IPv4 and in UDP or TCP; the destination follows."""


def run_trace(
    p4runtime: str,
    port: int | None,
    src: str | None,
    dst: str | None,
    parts: tuple[str, ...],
    job: str | None,
    slot: int | None,
    count: int | None,
    shown: str,
    html: Path | None,
    tls_ca: str | None,
    tls_certificate: str | None,
    tls_key: str | None,
) -> None:
    """Print traces until Ctrl-C, or `count` frames; or write a page to `html`. Raises ClickException."""
    where = [_part(text) for text in parts]
    for number, address in enumerate((src, dst)):
        where += [] if address is None else _flow(address, number)
    describe = FORMATS[shown]
    security = given(tls_ca, tls_certificate, tls_key, "--tls-ca, --tls-certificate and --tls-key")
    if html is not None:
        if job is None:
            raise click.UsageError("--html shows a collective of a job: name that by --job")
        chosen, recording = _view("page", job, slot, count)
        where += [pb.Bytes(offset=offset, value=value) for offset, value in chosen]
        _record(recording, pb.WatchRequest(port=port, where=where), security)
        click.echo(recording.write(html))
        return
    if job is not None:
        chosen, lines = _view("job", job, slot)
        where += [pb.Bytes(offset=offset, value=value) for offset, value in chosen]
        if shown == "text":
            describe = lambda trace: lines(msgspec.to_builtins(trace))  # noqa: E731
    elif slot is not None:
        raise click.UsageError("--slot is one of a job: name that by --job")
    with dial(p4runtime, security, role=SWITCH) as channel:
        request = pb.WatchRequest(port=port, where=where, packets=count or 0)
        stub: Any = trace_pb2_grpc.PacketTracesStub(channel)  # type: ignore[no-untyped-call]
        for trace in _traces(stub.Watch(request), p4runtime):
            for line in describe(trace):
                click.echo(line)


def _record(recording: Any, request: pb.WatchRequest, security: Security | None) -> None:
    """Give traces of all switches of a recording to it, until it has enough or Ctrl-C. Raises ClickException."""
    taken: queue.Queue[tuple[str, PacketTrace | Exception]] = queue.Queue()

    def follow(name: str, address: str, replies: Any) -> None:
        try:
            for trace in _traces(replies, address):
                taken.put((name, trace))
        except Exception as error:
            taken.put((name, error))

    with ExitStack() as stack, suppress(KeyboardInterrupt):
        for name, address in recording.addresses.items():
            channel = stack.enter_context(dial(address, security, role=SWITCH))
            stub: Any = trace_pb2_grpc.PacketTracesStub(channel)  # type: ignore[no-untyped-call]
            replies = stub.Watch(request)
            follower = threading.Thread(target=follow, args=(name, address, replies), daemon=True)
            follower.start()
            stack.callback(follower.join)
            stack.callback(replies.cancel)
        while True:
            try:
                name, trace = taken.get(timeout=QUIET_S)
            except queue.Empty:
                if recording.complete:
                    return
                continue
            if isinstance(trace, Exception):
                raise trace
            if recording.take(name, msgspec.to_builtins(trace)):
                return


def _view(name: str, *arguments: Any) -> Any:
    """Return a view of a job, which the package with the controller brings."""
    for entry in metadata.entry_points(group="p4reduce.trace_views", name=name):
        return entry.load()(*arguments)
    raise click.ClickException("--job needs the package p4reduce_controller, which is not installed")


def _traces(replies: Any, address: str) -> Iterator[PacketTrace]:
    lost = 0
    late = threading.Timer(STARTS_WITHIN_S, replies.cancel)
    late.start()
    try:
        next(replies)
        late.cancel()
        click.echo("trace on", err=True)
        for reply in replies:
            if reply.lost != lost:
                click.echo(
                    f"{reply.lost - lost} traces lost: the switch made them faster than they were read", err=True
                )
                lost = reply.lost
            yield msgspec.json.decode(reply.trace, type=PacketTrace)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNIMPLEMENTED:
            raise click.ClickException(f"at {address} is no embedded switch, or an older one") from error
        if error.code() == grpc.StatusCode.CANCELLED:
            waited = f"did not turn the trace on within {STARTS_WITHIN_S:g} s"
            raise click.ClickException(f"the switch at {address} {waited}: see its log, and start it again") from error
        if error.code() == grpc.StatusCode.UNAVAILABLE:
            advice = "start it with `p4reduce switch run`, name its address by --p4runtime, or give it --tls-*"
            raise click.ClickException(f"no switch answers at {address}: {advice}") from error
        raise click.ClickException(f"the switch at {address}: {error.details()}") from error
    finally:
        late.cancel()
        replies.cancel()


def _part(text: str) -> pb.Bytes:
    """Return what OFFSET=HEX[/MASK] says."""
    offset, equals, rest = text.partition("=")
    value, _, mask = rest.partition("/")
    try:
        part = pb.Bytes(offset=int(offset), value=bytes.fromhex(value), mask=bytes.fromhex(mask))
    except ValueError as error:
        raise click.UsageError(f"{text!r} is not OFFSET=HEX[/MASK]") from error
    if not equals or not part.value:
        raise click.UsageError(f"{text!r} is not OFFSET=HEX[/MASK]")
    return part


def _flow(text: str, number: int) -> list[pb.Bytes]:
    """Return the parts of the IPv4 frames, without options, of a sender (0) or a receiver (1)."""
    host, colon, port = text.partition(":")
    try:
        address = ipaddress.IPv4Address(host).packed
        found = [*IPV4, pb.Bytes(offset=ADDRESSES + 4 * number, value=address)]
        if colon:
            found.append(pb.Bytes(offset=PORTS + 2 * number, value=int(port).to_bytes(2, "big")))
    except (ValueError, OverflowError) as error:
        raise click.UsageError(f"{text!r} is not IP[:PORT]") from error
    return found
