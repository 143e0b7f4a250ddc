"""What was skipped, in the last lines of a run: a line for each reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest


def lines(skipped: Iterable[pytest.TestReport]) -> list[str]:
    """Return each reason with the number of tests that it has skipped, the most first."""
    reasons: Counter[str] = Counter()
    for report in skipped:
        assert isinstance(report.longrepr, tuple)  # file, line, reason
        reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
    return [f"SKIPPED [{count}] {reason}" for reason, count in reasons.most_common()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print them; `-rs` prints a line for each place instead."""
    if not terminalreporter.hasopt("s"):
        for line in lines(terminalreporter.stats.get("skipped", ())):
            terminalreporter.write_line(line)
