"""The marker `fault`: faults and attacks, each with the test that shows what comes of it (docs/reliability.md)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

MARKER = "fault"


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> list[str]:
    """List the faults for `pytest --collect-only -m fault`."""
    if not config.option.collectonly or config.option.markexpr != MARKER:
        return []
    found = {
        f"{marker.args[0]} ({item.nodeid.partition('[')[0]})": None
        for item in items
        for marker in item.iter_markers(MARKER)
    }
    return list(found)
