"""The marker `processes`: which tests have it, and that no other test forks or executes a process.

`make check` leaves the marked tests out.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any

import pytest

MARKER = "processes"

FIXTURES = {"system", "wide_system", "torch_server"}
"""Tests that use one of them have the marker."""
IMPLIED_BY = {"bmv2", "deploy", "p4c", "root", "tofino"}
"""Tests with one of these markers, which need a program of others or make network interfaces, have it too."""

EVENTS = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "rigs.fork_server.spawn",
    "subprocess.Popen",
}
"""Audit events, https://docs.python.org/3/library/audit_events.html, and that of rigs/fork_server.py."""

_seen: list[str] = []


def _record(event: str, arguments: tuple[Any, ...]) -> None:
    # fc-list: matplotlib lists the fonts by it where it has no cache of them.
    if event in EVENTS and arguments[:1] != ("fc-list",):
        _seen.append(event)


sys.addaudithook(_record)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the marker, before any test is deselected."""
    for item in items:
        implied = any(item.get_closest_marker(name) for name in IMPLIED_BY)
        if implied or FIXTURES.intersection(getattr(item, "fixturenames", ())):
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
