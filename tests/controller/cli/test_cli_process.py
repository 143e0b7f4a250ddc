"""The command as a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rigs.fake_switch_client import make_config
from rigs.limits import LIMIT_S

COMMAND = [sys.executable, "-m", "p4reduce_contracts"]


def test_a_controller_without_a_switch_ends_with_one_line(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    (tmp_path / "p4reduce.toml").write_text(
        f"[switch]\npipeline = '{config.switches[0].pipeline}'\nconnect_timeout_s = 0.2\n"
        f"[controller]\nlisten = '127.0.0.1:0'\nstate_dir = '{tmp_path}'\n"
    )
    done = subprocess.run(
        [*COMMAND, "controller", "run", "--config", "p4reduce.toml", "--p4runtime", "127.0.0.1:1"],
        cwd=tmp_path,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("Error: no P4Runtime switch at 127.0.0.1:1 for 0.2 s: start one with")
