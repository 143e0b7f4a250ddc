"""A program that ends with its parent, in places where the system permits less."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOW = """
import os, sys
print(open(sys.argv[1]).read(), len(os.sched_getaffinity(0)), os.listdir(os.environ["TMPDIR"]))
"""
RUN = """
import os, runpy, sys
def refuse(*_):
    raise PermissionError(1, "seccomp")
os.cpu_count = lambda: 1  # as by PYTHON_CPU_COUNT; LXC shows fewer processors than the highest number, too
setattr(os, sys.argv.pop(1), refuse)
runpy.run_module("p4reduce_runtime.tied", run_name="__main__", alter_sys=True)
"""


@pytest.mark.processes
@pytest.mark.parametrize("refused", ["sched_setaffinity", "memfd_create"])
def test_a_child_runs_on_all_processors_and_leaves_no_file_whatever_is_refused(tmp_path: Path, refused: str) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    (folder := tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", RUN, refused, "show", "{other}"]
    given = json.dumps({"one": "text", "other": "a {one}"}) + "\n"
    shown = subprocess.run(command, input=given, stdout=subprocess.PIPE, env=environment, text=True, check=True)
    words = shown.stdout.split()
    assert words[0] == "a" and words[1].startswith("/proc/self/fd/")
    assert words[2:] == [str(len(os.sched_getaffinity(0))), "[]"]
