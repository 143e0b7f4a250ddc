"""Measure how many frames a second switches forward: rate.py [PROGRAM...], as root, in a network namespace of its own.

A PROGRAM takes the options of simple_switch_grpc; by default it is p4reduce-simple-switch and, where it is on PATH,
simple_switch_grpc. Each runs examples/l3_switch from one veth pair to another, in turn with the others. Frames go in
one by one, at most two windows ahead of those that have come out, which the kernel counts. Prints the frames in a
second of the clock and in a second of the program's own processor time, medians of all turns.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from statistics import median

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from p4reduce_runtime.p4runtime.entries import TableEntry
from rigs import p4rt
from rigs.limits import LIMIT_S
from rigs.ports import own_address
from rigs.simple_switch import NAME as BMV2
from rigs.simple_switch import thrift

PROGRAM = Path(__file__).resolve().parents[2] / "examples/l3_switch/l3_switch"
FRAME_BYTES, WINDOW = 1000, 64
TURNS, TURN_S, WARM_UP_S = 5, 2.0, 0.3
POLL_S = 0.00005


class Forwarding:
    """A switch that forwards from its port 1 to its port 2, under load."""

    def __init__(self, stack: ExitStack, number: int, program: str) -> None:
        """Start it on two new veth pairs. AssertionError where it does not start."""
        self.clock: list[float] = []
        """Frames in a second of each turn."""
        self.core: list[float] = []
        """Frames in a second of the program's processor time, in each turn."""
        names = [f"s{number}p{port}" for port in (1, 2)]
        for name in names:
            ip("link", "add", name, "type", "veth", "peer", "name", f"{name}x")
            for end in (name, f"{name}x"):
                Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6").write_text("1")  # which sends frames by itself
                ip("link", "set", end, "up")
        address, ports = (
            own_address(),
            [word for port, name in enumerate(names, 1) for word in ("-i", f"{port}@{name}")],
        )
        command = [program, *ports, "--no-p4", *(thrift() if Path(program).name == BMV2 else [])]
        self._process = stack.enter_context(
            subprocess.Popen([*command, "--", "--grpc-server-addr", address], stdout=subprocess.DEVNULL)
        )
        stack.callback(self._process.terminate)
        client = stack.enter_context(p4rt.primary(address, device_id=0))
        client.set_program(PROGRAM)
        to = {"src_mac": 1, "dst_mac": 2, "port": 2}
        where = {"hdr.ipv4.dst": (int(IPv4Address("10.0.2.0")), 24)}
        client.insert(TableEntry("MainIngress.routes", where, "MainIngress.forward", to))
        self._out = f"{names[1]}x:"
        self._sender = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        self._sender.bind((f"{names[0]}x", 0))
        head = (
            Ether(src="02:00:00:00:00:09", dst="02:00:00:00:00:01")
            / IP(src="10.0.1.10", dst="10.0.2.10")
            / UDP(sport=9, dport=9)
        )
        self._frame = bytes(head / bytes(FRAME_BYTES - len(head)))

    def turn(self, seconds: float) -> None:
        """Load it for so long, and count. AssertionError when it forwards nothing any more."""
        sent, before, core, began = 0, self._forwarded(), self._core_s(), time.perf_counter()
        while time.perf_counter() - began < seconds:
            for _ in range(WINDOW):
                self._sender.send(self._frame)
            self._wait(before + sent)  # until all but this window are out: so there always is work
            sent += WINDOW
        self._wait(before + sent)
        self.clock.append(sent / (time.perf_counter() - began))
        self.core.append(sent / (self._core_s() - core))

    def _wait(self, forwarded: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self._forwarded() < forwarded:
            assert time.monotonic() < deadline, f"{self._process.args} has lost frames"
            time.sleep(POLL_S)  # the core is the switch's

    def _forwarded(self) -> int:
        lines = map(str.split, Path("/proc/self/net/dev").read_text().splitlines())
        return next(int(packets) for name, _, packets, *_ in lines if name == self._out)

    def _core_s(self) -> float:
        """Return the processor time that the threads of the process have used."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def ip(*words: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *words], check=True)


def main(programs: list[str]) -> None:
    """Measure, and print a line for each program."""
    ip("link", "set", "lo", "up")
    own = Path(sysconfig.get_path("scripts"), "p4reduce-simple-switch")
    programs = programs or [str(own), *filter(None, [shutil.which(BMV2)])]
    with ExitStack() as stack:
        all_of_them = [Forwarding(stack, number, program) for number, program in enumerate(programs)]
        for one in all_of_them:
            one.turn(WARM_UP_S)
            one.clock.clear()
            one.core.clear()
        for _ in range(TURNS):
            for one in all_of_them:
                one.turn(TURN_S)
    for program, one in zip(programs, all_of_them, strict=True):
        print(f"{program}: {median(one.clock):,.0f} frames/s, {median(one.core):,.0f} a core", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
