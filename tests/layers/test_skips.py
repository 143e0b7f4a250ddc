"""The last lines of a run name what was skipped, once for each reason."""

from __future__ import annotations

import pytest

from rigs.skips import lines


def skipped(file: str, reason: str) -> pytest.TestReport:
    where = (file, 7, f"Skipped: {reason}")
    return pytest.TestReport(f"{file}::test", (file, 7, "test"), {}, "skipped", where, "setup")


def test_a_reason_has_one_line_whatever_the_file() -> None:
    found = lines([skipped("a.py", "no p4c"), skipped("a.py", "no BMv2"), skipped("b.py", "no BMv2")])
    assert found == ["SKIPPED [2] no BMv2", "SKIPPED [1] no p4c"]
