"""The demo's child processes: errors with their logs, none is left behind; their ports, and what a run counts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from p4reduce_contracts.jobs.answers import AwaySwitch, Count, JobStats, Stats
from p4reduce_contracts.jobs.errors import SwitchAwayError
from p4reduce_lab import processes as children_module
from p4reduce_lab import reaper
from p4reduce_lab.addresses import LOOPBACK, free_port, reserved_port
from p4reduce_lab.processes import Children, ProcessError, follow, terminable
from p4reduce_lab.system import ROOT, System, new_state_dir
from rigs.limits import LIMIT_S, wait_until
from rigs.ports import own_port
from rigs.running import is_running

SLEEPER = [sys.executable, "-u", "-c", "print('here'); import time; time.sleep(600)"]
IGNORES_SIGTERM = [
    sys.executable,
    "-u",
    "-c",
    "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "below = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "print(below.pid); below.wait()",
]


def wait_until_ended(*pids: int) -> None:
    """Wait for all of them: a killed process takes a moment to go."""
    wait_until(lambda: not any(map(is_running, pids)))


@pytest.mark.processes
def test_errors_name_the_child_and_its_last_lines_and_lines_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_follow(tmp_path / "followed")
    before = os.environ.get(reaper.MARK)
    with Children(tmp_path) as children:
        assert os.environ[reaper.MARK] == children.mark != before
        child = children.start(
            "some worker", [sys.executable, "-c", "[print(f'line {i}') for i in range(50)]; exit(3)"]
        )
        with pytest.raises(ProcessError) as caught:
            child.wait_ready(lambda: False, LIMIT_S)
        message = caught.value.message
        assert "some worker ended with status 3" in message and str(tmp_path / "some-worker.log") in message
        assert "| line 49" in message and "| line 30" not in message
        switch = children.start("switch", SLEEPER)
        with pytest.raises(ProcessError, match=r"switch was not ready after 0\.2 s"):
            switch.wait_ready(lambda: False, 0.2)
        System("127.0.0.1:1", Mock(), (switch,), switch).check()
        for switches, controller in ((switch, child), switch), ((switch,), child):
            with pytest.raises(ProcessError, match="some worker ended with status 3"):
                System("127.0.0.1:1", Mock(), switches, controller).check()
    assert not is_running(switch.pid)
    assert os.environ.get(reaper.MARK) == before
    monkeypatch.setattr(reaper, "_MODULE", "nowhere.at_all")
    with pytest.raises(RuntimeError, match="nowhere.at_all` did not start"), Children(tmp_path):
        raise AssertionError("the block began")


def check_follow(tmp_path: Path) -> None:
    """The lines of children are followed until all end, or one fails, or nothing comes."""
    lines: list[tuple[int, str]] = []
    tmp_path.mkdir()
    with Children(tmp_path) as children:
        both = [children.start(name, ["sh", "-c", f"echo {name}; printf the-last"]) for name in ("a", "b")]
        follow(both, lambda number, line: lines.append((number, line)))
        assert sorted(lines) == [(0, "a"), (0, "the-last"), (1, "b"), (1, "the-last")]
        sleeper = children.start("sleeper", SLEEPER)
        for limit, words in ({"timeout_s": 0.1}, "still ran after"), ({"stall_s": 0.1}, "wrote nothing for"):
            with pytest.raises(ProcessError, match=f"sleeper {words} 0.1 s"):
                follow([sleeper], lambda number, line: None, **limit)
        failing = children.start("failing", ["false"])
        with pytest.raises(ProcessError, match="failing failed with status 1"):
            follow([sleeper, failing], lambda number, line: None)


@pytest.mark.processes
def test_all_children_end_with_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an exception, and on a signal; also those that ignore SIGTERM, and descendants of one that was killed."""
    with pytest.raises(ZeroDivisionError), Children(tmp_path) as children:
        started = [children.start(name, SLEEPER) for name in ("a", "b", "c")]
        raise ZeroDivisionError
    assert not any(is_running(child.pid) for child in started)
    assert threading.current_thread() is threading.main_thread()
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)
        with pytest.raises(KeyboardInterrupt), terminable(), Children(tmp_path) as children:
            child = children.start("switch", SLEEPER)
            os.kill(os.getpid(), number)
            child.wait(LIMIT_S)  # interrupted
        assert not is_running(child.pid)
        assert signal.getsignal(number) is before
    monkeypatch.setattr(children_module, "GRACE_S", 1.0)
    with Children(tmp_path) as children:
        both = [children.start(name, IGNORES_SIGTERM) for name in ("ignores", "killed")]
        for child in both:
            child.wait_ready(lambda child=child: child.log.read_text().endswith("\n"), LIMIT_S)
        below = [int(child.log.read_text()) for child in both]
        os.kill(both[1].pid, signal.SIGKILL)
        both[1].wait(LIMIT_S)
        assert all(map(is_running, below))
    wait_until_ended(both[0].pid, *below)


PROGRAM = f"""
import multiprocessing, sys, time
from pathlib import Path
from p4reduce_lab.processes import Children
with Children(Path(sys.argv[1])) as children:
    child = children.start("child", {IGNORES_SIGTERM!r})
    sleeper = children.start("sleeper", {SLEEPER!r})
    child.wait_ready(lambda: child.log.read_text().endswith("\\n"), 600)
    spawned = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    spawned.start()
    print(children.mark, child.pid, sleeper.pid, spawned.pid, child.log.read_text(), flush=True)
    time.sleep(600)
"""


@pytest.mark.fault("SIGKILL of a program with children: all its children end")
@pytest.mark.processes
def test_no_child_remains_after_a_killed_program(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            mark, *pids = program.stdout.readline().split()
            assert len(pids) == 4
            wait_until(lambda: set(map(int, pids)) <= set(reaper.processes(mark)))
        finally:
            program.kill()
    wait_until_ended(*map(int, pids))
    assert not reaper.processes(mark)


def test_a_run_starts_after_an_interrupted_one_left_its_jobs(tmp_path: Path) -> None:
    (new_state_dir(tmp_path) / "left").mkdir(parents=True)
    assert not new_state_dir(tmp_path).exists()


def test_bytes_between_switches_are_not_counted_without_one_of_them() -> None:
    stats = Stats(
        (
            JobStats("train", 1, contributions=Count(2, 200), duplicates=Count(1, 100), switch=ROOT),
            JobStats("train", 1, contributions=Count(9, 900), switch="leaf1", parent_answers=Count(2, 80)),
        ),
        (),
    )
    client = Mock()
    client.stats.side_effect = [stats, replace(stats, away=(AwaySwitch("leaf2", "leaf2 did not answer"),))]
    system = System("127.0.0.1:1", client, (), Mock())
    assert system.trunk_bytes("train") == (300, 80)
    with pytest.raises(SwitchAwayError, match="leaf2 did not answer"):
        system.trunk_bytes("train")


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_is_taken_is_not_free(kind: socket.SocketKind) -> None:
    with ExitStack() as stack:
        ports = [own_port(kind) for _ in range(3)]
        for port in ports[:2]:
            stack.enter_context(socket.socket(socket.AF_INET, kind)).bind((LOOPBACK, port))
        assert free_port(kind, ports) == ports[2]
        with pytest.raises(OSError, match="end other programs"):
            free_port(kind, ports[:2])


def test_free_ports_are_below_those_that_the_system_gives_away() -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first = int(file.read().split()[0])
    if first != 32_768:
        pytest.skip(f"this machine gives ports from {first} on away, Linux by itself from 32768 on")
    assert free_port() < first and own_port() < first


def test_a_reserved_port_is_given_to_a_server_that_asks_for_it_alone() -> None:
    with reserved_port() as port, socket.socket() as server, socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind((LOOPBACK, port))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((LOOPBACK, port))
        server.listen()
