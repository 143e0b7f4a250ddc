"""Launches that bring their own switches, ended in all ways (launches.py)."""

from __future__ import annotations

import pytest

from system import launches

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.mark.fault(
    "a launch's ranks or torchrun are killed, raise, or cannot start a switch: switches, controller and files end"
)
def test_launches_train_and_leave_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert not launches.main(["--launches", str(len(launches.ENDS)), "--at-once", "2"]), capsys.readouterr().out
