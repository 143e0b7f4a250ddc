"""The demo's child processes: errors with their logs, and none is left behind."""

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from p4reduce_lab import processes as children_module
from p4reduce_lab.processes import Children, ProcessError, terminable

SLEEPER = [sys.executable, "-u", "-c", "print('here'); import time; time.sleep(600)"]
DEAF = [
    sys.executable,
    "-u",
    "-c",
    "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "below = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "print(below.pid); below.wait()",
]


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_an_early_end_is_an_error_with_the_end_of_the_log(tmp_path: Path) -> None:
    script = "[print(f'line {i}') for i in range(50)]; raise SystemExit(3)"
    with Children(tmp_path) as children:
        child = children.start("some worker", [sys.executable, "-c", script])
        with pytest.raises(ProcessError) as caught:
            child.wait_ready(lambda: False, 30)
    message = caught.value.message
    assert "some worker ended with status 3" in message and str(tmp_path / "some-worker.log") in message
    assert "| line 49" in message and "| line 30" not in message


def test_not_ready_in_time_is_an_error(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("switch", SLEEPER)
        with pytest.raises(ProcessError, match=r"switch was not ready after 0\.2 s"):
            child.wait_ready(lambda: False, 0.2)
    assert not alive(child.pid)


def test_all_end_with_the_block_whatever_happens(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Children(tmp_path) as children:
        started = [children.start(name, SLEEPER) for name in ("a", "b", "c")]
        raise ZeroDivisionError
    assert not any(alive(child.pid) for child in started)


def test_one_that_ignores_sigterm_is_killed_with_its_descendants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc")
    monkeypatch.setattr(children_module, "GRACE_S", 1.0)
    with Children(tmp_path) as children:
        child = children.start("deaf", DEAF)
        child.wait_ready(lambda: child.log.read_text().endswith("\n"), 30)
        below = int(child.log.read_text())
        assert alive(below)
    deadline = time.monotonic() + 10
    while alive(below) and time.monotonic() < deadline:  # a killed process takes a moment to go
        time.sleep(0.01)
    assert not alive(child.pid) and not alive(below)


def test_the_end_of_another_child_is_noticed(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        workers = children.start("workers", SLEEPER)
        switch = children.start("switch", [sys.executable, "-c", "raise SystemExit('out of ports')"])
        children.check_others(but=switch)
        switch.wait(30)
        with pytest.raises(ProcessError, match="switch ended with status 1"):
            children.check_others(but=workers)


def test_sigterm_ends_the_children_too(tmp_path: Path) -> None:
    assert threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminable(), Children(tmp_path) as children:
        child = children.start("switch", SLEEPER)
        os.kill(os.getpid(), signal.SIGTERM)
        child.wait(30)  # interrupted
    assert not alive(child.pid)
    assert signal.getsignal(signal.SIGTERM) is before
