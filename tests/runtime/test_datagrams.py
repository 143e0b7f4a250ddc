"""Datagrams through compiled code: runs of equal length go and come as one, and everybody gets the same datagrams."""

from __future__ import annotations

import errno
import importlib
import itertools
import random
import select
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from p4reduce_runtime import datagrams
from p4reduce_runtime.underlay import ENCAP_BYTES
from rigs.limits import LIMIT_S

SPLIT = [
    [1000] * 64,
    [1000] * 200,
    [900, 900, 900, 40, 900, 900],
    [10, 20, 30, 30, 30, 20],
    [0, 0, 5, 5, 0],
    [30000] * 5,
]
LOOPBACK = 0x7F000001


@pytest.fixture(scope="module")
def compiled() -> Any:
    if not datagrams.supported():
        pytest.skip("needs 64-bit Linux")
    return importlib.import_module("p4reduce_runtime.datagrams.kernels")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets on loopback: one that sends, one that receives."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there,
    ):
        for end in (here, there):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            end.bind(("127.0.0.1", 0))
            end.setblocking(False)
        yield here, there


def payloads_of(lengths: Sequence[int]) -> list[bytes]:
    seeded = random.Random(repr(lengths))
    return [seeded.randbytes(length) for length in lengths]


def send(compiled: Any, opened: socket.socket, to: Any, payloads: Sequence[bytes]) -> tuple[int, Any]:
    """Send from memory where they stand one after the other; returns how many were tried, and the socket's words."""
    io = datagrams.socket_state(opened.fileno())
    kept = np.frombuffer(b"".join(payloads) + b"\0", np.uint8)
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    addresses = kept.ctypes.data + np.concatenate([[0], np.cumsum(lengths)])
    return compiled.send(io, to[0], addresses.astype(np.int64), lengths, 0, len(payloads)), io


def plain(opened: socket.socket) -> list[bytes]:
    """Return what a receiver that knows of no runs gets."""
    found = []
    while select.select([opened], [], [], 0 if found else LIMIT_S)[0]:
        found.append(opened.recv(70000))
    return found


def received(compiled: Any, opened: socket.socket) -> list[tuple[bytes, int, int]]:
    """(Payload, sender's address, sender's port) of each datagram, from runs."""
    io, ring = datagrams.socket_state(opened.fileno()), np.zeros(datagrams.RECEIVE_BYTES, np.uint8)
    assert select.select([opened], [], [], LIMIT_S)[0]
    found = []
    while (got := compiled.receive(io, ring, 0)) >= 0:
        step = max(int(io["segment"][0]), 1)
        sender = int(io["sender_ip"][0]), int(io["sender_port"][0])
        found += [(ring[at : min(at + step, got)].tobytes(), *sender) for at in range(0, max(got, 1), step)]
    assert got == -errno.EAGAIN == -io["error"][0]
    return found


@pytest.mark.parametrize("lengths", SPLIT)
@pytest.mark.parametrize("runs_accepted", [False, True])
@pytest.mark.parametrize("sent_plainly", [False, True])
def test_datagrams_arrive_as_they_were_sent(
    compiled: Any, ends: Any, lengths: list[int], runs_accepted: bool, sent_plainly: bool
) -> None:
    here, there = ends
    payloads = payloads_of(lengths)
    to = datagrams.destination(LOOPBACK, there.getsockname()[1], sent_plainly)
    if runs_accepted:
        datagrams.accept_runs(there)
    tried, io = send(compiled, here, to, payloads)
    assert (tried, io["lost"][0], to["plain"][0]) == (len(payloads), 0, sent_plainly)
    found = received(compiled, there) if runs_accepted else plain(there)
    sender = (LOOPBACK, here.getsockname()[1])
    assert found == ([(payload, *sender) for payload in payloads] if runs_accepted else payloads)


def test_a_connected_socket_needs_no_destination(compiled: Any, ends: Any) -> None:
    here, there = ends
    here.connect(there.getsockname())
    send(compiled, here, datagrams.destination(), [b"first", b"other"])
    assert plain(there) == [b"first", b"other"]


def test_datagrams_are_sent_one_by_one_where_gso_fails(compiled: Any, ends: Any) -> None:
    here, there = ends
    here.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK: the kernel cuts up no run then
    payloads = payloads_of([500] * 10)
    to = datagrams.destination(LOOPBACK, there.getsockname()[1])
    tried, io = send(compiled, here, to, payloads)
    assert (tried, io["lost"][0]) == (10, 0)
    assert plain(there) == payloads
    assert to["plain"][0] == 1


def test_a_datagram_that_cannot_be_sent_has_no_effect_on_others(compiled: Any, ends: Any) -> None:
    here, there = ends
    payloads = payloads_of([100, 65508, 200, 200])
    tried, io = send(compiled, here, datagrams.destination(LOOPBACK, there.getsockname()[1]), payloads)
    assert (tried, io["lost"][0], io["lost_bytes"][0]) == (4, 1, 65508)
    assert io["error"][0] == errno.EMSGSIZE
    assert plain(there) == [payloads[0], *payloads[2:]]


def test_a_refused_connection_does_not_disable_gso(compiled: Any, ends: Any) -> None:
    here, there = ends
    here.connect(there.getsockname())
    port = there.getsockname()[1]
    there.close()
    to = datagrams.destination()
    _, io = send(compiled, here, to, [b"no answer"])
    select.select([here], [], [], LIMIT_S)  # for the ICMP answer that the port is closed
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", port))
        tried, io = send(compiled, here, to, [b"first", b"other"])
        assert (tried, io["lost"][0], to["plain"][0]) == (2, 0, 0)
        assert plain(there) == [b"first", b"other"]


def test_a_full_buffer_stops_and_returns_the_index(compiled: Any) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        here.setblocking(False)
        payloads = payloads_of([1000] * 3000)
        to = datagrams.destination(plain=True)
        tried, io = send(compiled, here, to, payloads)
        assert 0 < tried < 3000
        assert (io["error"][0], io["lost"][0]) == (errno.EAGAIN, 0)
        assert plain(there) == payloads[:tried]


def test_waiting_ends_with_the_first_that_is_ready(compiled: Any, ends: Any) -> None:
    here, there = ends
    waits = datagrams.polled([there.fileno(), here.fileno()], datagrams.WRITABLE)
    waits[0]["events"] = datagrams.READABLE
    assert compiled.wait(waits[:1], 1) == 0
    assert compiled.wait(waits, 10_000) == 1
    assert waits["revents"].tolist() == [0, datagrams.WRITABLE]
    here.sendto(b"x", there.getsockname())
    assert compiled.wait(waits[:1], 10_000) == 1


def test_the_clock_is_the_monotonic_one(compiled: Any) -> None:
    import time

    before, now, after = time.monotonic(), compiled.microseconds() / 1e6, time.monotonic()
    assert before - 1e-6 <= now <= after


def test_many_senders_and_lengths(compiled: Any, ends: Any) -> None:
    _, there = ends
    datagrams.accept_runs(there)
    seeded = random.Random(1)
    sent: dict[int, list[bytes]] = {}
    for turn in range(20):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
            here.bind(("127.0.0.1", 0))
            lengths = [
                length for length in seeded.choices([0, 1, 100, 1100, 9000], k=6) for _ in range(seeded.randint(1, 9))
            ]
            payloads = payloads_of([*lengths, turn])
            send(compiled, here, datagrams.destination(LOOPBACK, there.getsockname()[1]), payloads)
            sent.setdefault(here.getsockname()[1], []).extend(payloads)
    found = received(compiled, there)
    by_port = {port: [payload for payload, _, sender in found if sender == port] for port in sent}
    assert by_port == sent
    assert [port for port, _ in itertools.groupby(sender for _, _, sender in found)] == list(sent)


def test_runs_are_as_long_as_those_received(compiled: Any) -> None:
    for function in (compiled.follow, compiled.follow.py_func):
        io, path = datagrams.socket_state(0), datagrams.destination(run_bytes=datagrams.SHORT_RUN_BYTES)

        def arrive(datagram: int, count: int, function: Any = function, io: Any = io, path: Any = path) -> int:
            io["segment"] = datagram
            function(io.view(np.recarray)[0], path.view(np.recarray)[0], datagram * count)
            return int(path["run_bytes"][0])

        assert {arrive(1000, count) for count in (1, 15)} == {datagrams.SHORT_RUN_BYTES}
        assert arrive(1000, 16) == datagrams.RUN_BYTES
        assert {arrive(1000, 1) for _ in range(datagrams.LONG_RUNS_REMEMBERED)} == {datagrams.RUN_BYTES}
        assert arrive(0, 1) == datagrams.SHORT_RUN_BYTES
        assert arrive(1000, 40) == datagrams.RUN_BYTES
        assert {arrive(1000, 15) for _ in range(datagrams.LONG_RUNS_REMEMBERED // 15)} == {datagrams.RUN_BYTES}
        assert arrive(1000, 15) == datagrams.SHORT_RUN_BYTES


@pytest.mark.parametrize("longest", [datagrams.RUN_BYTES, datagrams.SHORT_RUN_BYTES])
def test_no_run_is_longer_than_may_be(compiled: Any, ends: Any, longest: int) -> None:
    here, there = ends
    datagrams.accept_runs(there)
    to = datagrams.destination(LOOPBACK, there.getsockname()[1], run_bytes=longest)
    send(compiled, here, to, payloads_of([1114] * 60))
    runs = [len(run) // 1114 for run in plain(there)]
    assert sum(runs) == 60
    assert max(runs) == longest // (1114 + ENCAP_BYTES)
