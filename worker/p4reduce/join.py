"""Joining a job: from a name to a communicator."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from p4reduce.communicator import Communicator
from p4reduce.errors import GeometryMismatch, JoinError
from p4reduce.heartbeat import Heartbeat
from p4reduce.session import DEFAULT_TIMEOUT_S
from p4reduce.transport import Transport, UdpTransport
from p4reduce_contracts.jobs import DEFAULT_CONTROLLER
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import pack_hello

if TYPE_CHECKING:
    from p4reduce_contracts.jobs.client import JobClient

_RETRY_S: Final = 0.5


def join(
    job: str | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    controller: str | None = None,
    timeout_s: float = 30.0,
    collective_timeout_s: float = DEFAULT_TIMEOUT_S,
    window: int | None = None,
) -> Communicator:
    """Join a job and wait until all its ranks have.

    What is not given is read from the environment: P4REDUCE_JOB, RANK, WORLD_SIZE (as torchrun sets
    them) and P4REDUCE_CONTROLLER (host:port of the controller, default 127.0.0.1:9600).
    `timeout_s` bounds the joining, `collective_timeout_s` every collective that names no timeout,
    `window` fixes how many slots a collective uses (default: adaptive); all ranks must give the same.
    What is not closed by the end of the interpreter is closed then.
    Raises JoinError, whose message says what to change.
    """
    from p4reduce_contracts.jobs.client import JobClient, JobServiceError, SwitchAway

    if timeout_s <= 0:
        raise JoinError(f"timeout_s is {timeout_s:g}; give a time to wait in seconds")
    if window is not None and window < 1:
        raise JoinError(f"window is {window}; a collective uses 1 slot or more")
    deadline = time.monotonic() + timeout_s
    environment = os.environ
    job = job or environment.get("P4REDUCE_JOB")
    if not job:
        raise JoinError(
            "no job name: pass job=... or set P4REDUCE_JOB (create one with `p4reduce job create`)"
        )
    rank = _number("rank", "RANK", rank, environment)
    world_size = _number("world_size", "WORLD_SIZE", world_size, environment)
    if not 0 <= rank < world_size:
        raise JoinError(f"rank {rank} of world size {world_size}: ranks are 0 to {world_size - 1}")
    address = controller or environment.get("P4REDUCE_CONTROLLER") or DEFAULT_CONTROLLER
    client = JobClient(address)
    try:
        while True:
            try:
                lease, transport, nonce = _admit(client, job, rank, world_size, deadline)
                break

            except SwitchAway as error:  # the controller is reconnecting to its switch
                if time.monotonic() + _RETRY_S >= deadline:
                    raise JoinError(f"rank {rank} could not join job {job!r}: {error}") from error
                time.sleep(_RETRY_S)
            except JobServiceError as error:
                raise JoinError(f"rank {rank} could not join job {job!r}: {error}") from error
    except BaseException:
        client.close()
        raise
    heartbeat = Heartbeat(client, nonce, lease)
    comm = Communicator(lease, transport, membership=heartbeat, timeout_s=collective_timeout_s, window=window)
    _leave_at_exit(comm, heartbeat)
    return comm


_communicators: weakref.WeakSet[Communicator] = weakref.WeakSet()
_heartbeats: weakref.WeakSet[Heartbeat] = weakref.WeakSet()
_process = 0


def _leave_at_exit(comm: Communicator, heartbeat: Heartbeat) -> None:
    """See to it that the place is given up when the interpreter ends, but not by a forked child."""
    global _process
    if _process != os.getpid():  # registered here, after gRPC is imported, so that it runs before gRPC's end
        _process = os.getpid()
        _communicators.clear()
        _heartbeats.clear()
        atexit.register(_leave_all, _process)
    _communicators.add(comm)
    _heartbeats.add(heartbeat)


def _leave_all(process: int) -> None:
    if process != os.getpid():
        return
    for comm in list(_communicators):
        with contextlib.suppress(Exception):
            comm.close()
    for heartbeat in list(_heartbeats):  # of communicators that were forgotten: their heartbeats go on
        with contextlib.suppress(Exception):
            heartbeat.leave()


def _number(what: str, variable: str, given: int | None, environment: Mapping[str, str]) -> int:
    if given is not None:
        return given
    text = environment.get(variable)
    if text is None:
        raise JoinError(f"no {what}: pass {what}=... or set {variable} (torchrun does)")
    try:
        return int(text)
    except ValueError:
        raise JoinError(f"{variable} is {text!r}; it has to be a whole number") from None


def _admit(
    client: JobClient, job: str, rank: int, world_size: int, deadline: float
) -> tuple[Lease, Transport, int]:
    """Join, and say HELLO until the controller grants the lease; the place is given up on any error."""
    ticket = client.join(job, rank, world_size)
    transport: UdpTransport | None = None
    try:
        transport = _socket(ticket.switch_host, ticket.switch_port)
        hello = pack_hello(ticket.job_id, ticket.nonce)
        with _repeating(transport, hello, ticket.hello_interval_s or 0.1):
            granted = client.wait_lease(ticket.nonce, max(0.1, deadline - time.monotonic()))
        return granted, transport, ticket.nonce
    except BaseException as error:
        if transport is not None:
            transport.close()
        with contextlib.suppress(Exception):
            client.leave(ticket.nonce)
        if isinstance(error, GeometryMismatch):
            raise GeometryMismatch(f"the switch's pipeline does not suit this worker: {error}") from error
        raise


def _socket(host: str, port: int) -> UdpTransport:
    try:
        return UdpTransport(host, port)
    except OSError as error:
        raise JoinError(f"no UDP socket towards the switch at {host}:{port}: {error}") from error


@contextlib.contextmanager
def _repeating(transport: Transport, frame: bytes, interval_s: float) -> Iterator[None]:
    """Send `frame` at once and then every `interval_s`, while the body runs."""
    stop = threading.Event()

    def repeat() -> None:
        while True:
            transport.send([frame])
            if stop.wait(interval_s):
                return

    thread = threading.Thread(target=repeat, name="p4reduce-hello", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=5.0)
