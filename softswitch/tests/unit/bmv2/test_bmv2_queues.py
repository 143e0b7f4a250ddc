"""Egress queues beside BMv2's: the same load through an interface that `tc` makes slow."""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from conformance.case import PROGRAMS
from rigs.p4rt import ready
from rigs.ports import own_address
from rigs.simple_switch import thrift

PROGRAM = PROGRAMS / "timed" / "queues.json"
FRAME_BYTES, FRAMES_PER_S, SECONDS, LINK = 1000, 200, 6, "500kbit"
COMMANDS = {"bmv2": ["simple_switch_grpc"], "embedded": [sys.executable, "-m", "p4reduce_switch.bmv2"]}


@dataclass(frozen=True)
class Seen:
    """The queueing metadata of the frames that left."""

    first_marked: int
    """Number of the first frame that found 10 others in the queue."""
    depths: list[int]
    """enq_qdepth"""
    depths_after: list[int]
    """deq_qdepth"""
    delays_us: list[int]
    """deq_timedelta"""

    @property
    def marked(self) -> int:
        """Frames that found at least 10 others."""
        return sum(depth >= 10 for depth in self.depths)


@contextmanager
def running(command: list[str], slow: str, other: str) -> Iterator[None]:
    """A switch with interfaces as its ports 1 and 2."""
    address = own_address()
    options = thrift() if command == COMMANDS["bmv2"] else []
    options += ["-i", f"1@{slow}", "-i", f"2@{other}", str(PROGRAM), "--log-level", "off"]
    options += ["--", "--grpc-server-addr", address]
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            ready(address, process)
            time.sleep(0.5)  # BMv2 listens before it starts its threads
            yield
        finally:
            process.kill()


def load(slow: str, into: str) -> Seen:
    """Send frames at a steady rate by `into` to port 1, and read what leaves there until nothing more does."""
    frames: list[bytes] = []

    def receive() -> None:
        receiver.settimeout(2.0)
        while True:
            try:
                frames.append(receiver.recv(4096))
            except TimeoutError:
                return

    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as receiver,
    ):
        sender.bind((into, 0))
        receiver.bind((slow, 3))
        receiver.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING
        thread = threading.Thread(target=receive)
        thread.start()
        begun = time.monotonic()
        for number in range(FRAMES_PER_S * SECONDS):
            time.sleep(max(0.0, begun + number / FRAMES_PER_S - time.monotonic()))
            sender.send(bytes((1, 0)) + bytes(22) + number.to_bytes(4, "big") + bytes(FRAME_BYTES - 28))
        thread.join()
    numbers, depths, delays, after = ([int.from_bytes(f[at : at + 4], "big") for f in frames] for at in (24, 6, 10, 14))
    return Seen(next(n for n, depth in zip(numbers, depths, strict=True) if depth >= 10), depths, after, delays)


@pytest.mark.root
@pytest.mark.bmv2
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH")
@pytest.mark.skipif(shutil.which("tc") is None, reason="needs the command tc")
@pytest.mark.parametrize("arrivals", ["by another link", "by the same link"])
def test_a_slow_link_fills_the_queue_as_on_bmv2(two_pairs: tuple[tuple[str, str], ...], arrivals: str) -> None:
    (inner, outer), (other, other_outer) = two_pairs
    shape = ["tc", "qdisc", "add", "dev", inner, "root", "handle", "5:", "htb", "default", "1"]
    subprocess.run(shape, check=True)
    rate = ["tc", "class", "add", "dev", inner, "parent", "5:", "classid", "5:1", "htb", "rate", LINK, "burst", "15k"]
    subprocess.run(rate, check=True)
    seen = {}
    for name, command in COMMANDS.items():
        with running(command, inner, other):
            seen[name] = load(outer, outer if arrivals == "by the same link" else other_outer)
    bmv2, embedded = seen["bmv2"], seen["embedded"]
    assert bmv2.marked > 100, "the load is too small to fill the queue"
    assert abs(embedded.first_marked - bmv2.first_marked) <= 5
    assert abs(len(embedded.depths) - len(bmv2.depths)) <= 10
    assert abs(embedded.marked - bmv2.marked) <= 10
    assert max(embedded.depths) == 63
    assert max(bmv2.depths) in (63, 64)  # it differs from run to run
    assert abs(statistics.mean(embedded.depths) - statistics.mean(bmv2.depths)) <= 2
    assert abs(statistics.mean(embedded.depths_after) - statistics.mean(bmv2.depths_after)) <= 2
    assert statistics.mean(embedded.delays_us) == pytest.approx(statistics.mean(bmv2.delays_us), rel=0.1)
    print(f"\nfirst marked, left, marked: BMv2 {bmv2.first_marked}, {len(bmv2.depths)}, {bmv2.marked}; ", end="")
    print(f"embedded {embedded.first_marked}, {len(embedded.depths)}, {embedded.marked}")
