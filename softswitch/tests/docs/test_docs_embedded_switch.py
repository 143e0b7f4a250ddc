"""docs/switch/embedded-switch.md: its example does what it says, and what it names is there."""

from __future__ import annotations

import contextlib
import fnmatch
import re
import shlex
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from conformance import recording
from conformance.case import PROGRAMS
from p4reduce_runtime.p4runtime.schema import parse_p4info
from rigs.limits import LIMIT_S, wait_until
from rigs.local_switch import LocalSwitch
from rigs.p4rt import served

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/switch/embedded-switch.md").read_text()
SHELL = ROOT / ".venv/shell/bin/python"
PRELUDE = """
import sys
from p4runtime_sh.shell import *
setup(grpc_addr=sys.argv[1], election_id=(0, 1), verbose=False)
"""


def test_tests_and_cases_named_in_the_table_exist() -> None:
    start = PAGE.index("| feature | here | BMv2 1.15.5 | tests |")
    rows = PAGE[start : PAGE.index("\n\n", start)].splitlines()[2:]
    tests = {path.name for path in (ROOT / "softswitch/tests").rglob("test_*.py")}
    cases = recording.names()
    assert len(rows) >= 10
    for row in rows:
        held = row.split("|")[4]
        for name in re.findall(r"`(\S+)`", held):
            found = name in tests if name.endswith(".py") else fnmatch.filter(cases, name)
            assert found, f"{name} of the row {row}"


@pytest.mark.skipif(not SHELL.exists(), reason="p4runtime-shell is not installed: run `make test`")
@pytest.mark.processes
def test_the_example_balances_load() -> None:
    start = PAGE.index("    for port in 1, 2:")
    example = textwrap.dedent(PAGE[start : PAGE.index("About three of four flows")])
    stem = PROGRAMS / "action_selector"
    p4info = parse_p4info(stem.with_suffix(".p4info.txtpb").read_text())
    with served() as switch:
        switch.server.set_pipeline(p4info, stem.with_suffix(".json").read_bytes())
        command = [SHELL, "-c", PRELUDE + example + "teardown()\n", switch.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        for flow in range(200):
            switch.switch.receive(1, bytes((0x10, 0, flow, flow * 7 % 256)))
        ports = Counter(switch.ports.sent.get(timeout=LIMIT_S)[0] for _ in range(200))
    assert set(ports) == {1, 2} and 120 < ports[1] < 180


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the last command ends with its socket
def test_the_exercise_finds_a_table_miss() -> None:
    """The three commands of the page, with free ports: the first as what it starts, in this process."""
    commands, shown = re.findall(r"```sh\n(.*?)```\n\n(.*?)\n\n", PAGE.partition("## Trace packets")[2], re.S)[0]
    run, trace, send = map(shlex.split, commands.splitlines())
    pipeline = ROOT / run[run.index("--pipeline") + 1]
    with contextlib.closing(LocalSwitch()) as switch:
        p4info = parse_p4info(pipeline.with_suffix(".p4info.txtpb").read_text())
        switch.server.set_pipeline(p4info, pipeline.read_bytes())
        assert trace[:2] == ["p4reduce", "switch"]
        words = [sys.executable, "-m", "p4reduce_contracts", *trace[1:], "--p4runtime", switch.address("P4Runtime")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as traced:
            wait_until(lambda: switch.switch._watches or traced.poll() is not None)
            assert send[:2] == ["python", "-c"]
            exec(send[2].replace("21072", switch.address("UDP").rpartition(":")[2]), {})
            output, _ = traced.communicate(timeout=LIMIT_S)
    assert traced.returncode == 0
    assert textwrap.dedent(shown).splitlines()[1:] == output.splitlines()[-6:]
