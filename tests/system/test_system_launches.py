"""Launches that bring their own switches, ended in three ways (launches.py)."""

from __future__ import annotations

import pytest

from system import launches

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.mark.fault("a launch's ranks end, raise or are killed: its switch, controller and files end with them")
def test_launches_train_and_leave_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert not launches.main(["--launches", "3"]), capsys.readouterr().out
