"""The marker `processes`: which tests have it, and that no other test starts a process or opens a socket.

`make check` leaves the marked tests out. Servers of gRPC within the test's process, which Python's audit events do not
report, are not counted.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
MARKER = "processes"

FILES = (
    "controller/cli/test_cli_process.py",
    "controller/jobs/test_jobs_on_tofino.py",
    "controller/test_controller_metrics.py",
    "docs/test_docs_release.py",
    "docs/test_docs_site.py",
    "docs/test_docs_softswitch.py",
    "docs/test_docs_walks.py",
    "fuzz/test_fuzz_coverage_guided.py",
    "interop",
    "lab/bench/test_bench_runs.py",
    "lab/bench/test_bench_thresholds.py",
    "lab/test_demo.py",
    "lab/test_example.py",
    "lab/test_processes.py",
    "runtime/test_datagrams.py",
    "runtime/test_kernel_cache.py",
    "runtime/test_metrics.py",
    "softswitch/bmv2/test_bmv2_process.py",
    "softswitch/bmv2/test_bmv2_queues.py",
    "softswitch/p4runtime/test_p4rt_server_request_guard.py",
    "softswitch/ports/test_datapath.py",
    "softswitch/ports/test_ports_udp.py",
    "softswitch/ports/test_switch_any_program.py",
    "softswitch/ports/test_switch_process.py",
    "softswitch/test_switch_metrics.py",
    "system",
    "testbed/test_testbed_live.py",
    "worker/backend",
    "worker/codecs/test_codecs_interpreted.py",
    "worker/comm/test_comm_fork.py",
    "worker/comm/test_comm_join.py",
    "worker/comm/test_comm_metrics_server.py",
    "worker/comm/test_comm_udp.py",
    "worker/doctor/test_doctor.py",
    "worker/frameworks",
    "worker/protocol/test_engine_interpreted.py",
    "worker/protocol/test_pump.py",
)
"""Files and folders whose tests all have the marker."""
FIXTURES = {"system", "torch_server", "pair"}
"""Tests that use one of them have the marker."""
IMPLIED_BY = {"bmv2", "p4c", "root", "tofino"}
"""Tests with one of these markers have it too."""

EVENTS = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "socket.bind",
    "socket.connect",
    "subprocess.Popen",
}
"""Audit events, https://docs.python.org/3/library/audit_events.html."""

_seen: list[str] = []


def _record(event: str, _: Any) -> None:
    if event in EVENTS:
        _seen.append(event)


sys.addaudithook(_record)


@functools.cache
def is_listed(path: Path) -> bool:
    """Whether all tests of the file have the marker."""
    listed = {TESTS / name for name in FILES}
    return not listed.isdisjoint((path, *path.parents))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file whose tests would all be deselected."""
    if f"not {MARKER}" in config.option.markexpr and is_listed(collection_path):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the marker."""
    for item in items:
        implied = any(item.get_closest_marker(name) for name in IMPLIED_BY)
        if implied or is_listed(item.path) or FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(MARKER)


def _checked(item: pytest.Item) -> Generator[None, Any, Any]:
    _seen.clear()
    result = yield
    if _seen and item.get_closest_marker(MARKER) is None:
        pytest.fail(f"this test has no marker `{MARKER}`, but caused {', '.join(sorted(set(_seen)))}", pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail an unmarked test whose fixtures start a process."""
    return (yield from _checked(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail an unmarked test that starts a process."""
    return (yield from _checked(item))
