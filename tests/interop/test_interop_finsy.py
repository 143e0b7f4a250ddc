"""finsy, a P4Runtime client that shares no code with ours, against the embedded switch and against BMv2.

finsy cannot be imported into our process (both register P4Runtime's protobuf files), so it has an environment of its
own: `make test` sets up .venv/interop.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rigs.limits import LIMIT_S
from rigs.p4rt import bmv2, served

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv/interop/bin/python"

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="finsy is not installed: run `make test`")


def session(script: str, address: str, program: Path) -> dict[str, object]:
    command = [PYTHON, Path(__file__).with_name(script), address, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def check_session(address: str) -> None:
    seen = session("finsy_session.py", address, ROOT / "p4src/artifacts/v1model/small")
    assert seen["primary"] is True
    assert seen["addresses"] == [[0x0A000001, 0x020000000002]]
    assert seen["macs"] == [[0xA, 1]]
    assert seen["groups"] == [[5, ["1", "2#7"]]]
    assert seen["counter"] == [[3, 0, 0]]
    assert seen["failed"] == [[1, "ALREADY_EXISTS"]], "the second update of the batch, and only that"


def check_meters(address: str) -> None:
    seen = session("finsy_meters.py", address, ROOT / "tests/softswitch/p4runtime/every_kind")
    rates = [1000, 100, 2000, 200]
    assert seen["cells"] == [[0, None], [1, rates], [2, None], [3, None]]
    assert seen["reset"] == [[1, None]]
    assert seen["inserted"] == [[7, rates]]
    assert seen["direct"] == [[7, [1, 2, 3, 4]]]
    assert seen["failed"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("check", [check_session, check_meters])
def test_embedded_switch(check: Callable[[str], None]) -> None:
    with served() as switch:
        check(switch.address)


@pytest.mark.bmv2
@pytest.mark.parametrize("check", [check_session, check_meters])
def test_bmv2(check: Callable[[str], None]) -> None:
    with bmv2() as address:
        check(address)
