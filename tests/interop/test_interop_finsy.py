"""finsy, a P4Runtime client that shares no code with ours, against the embedded switch and against BMv2.

finsy cannot be imported beside the p4runtime package (both register the same protobuf files), so it has an
environment of its own: `make test` sets up .venv/interop.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rigs.p4rt import bmv2, served

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv/interop/bin/python"
LIMIT_S = 60.0

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="finsy is not installed: run `make test`")


def session(address: str) -> dict[str, object]:
    command = [PYTHON, Path(__file__).with_name("finsy_session.py"), address, ROOT / "p4src/artifacts/v1model/small"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def check(seen: dict[str, object]) -> None:
    assert seen["primary"] is True
    assert seen["addresses"] == [[0x0A000001, 0x020000000002]]
    assert seen["macs"] == [[0xA, 1]]
    assert seen["groups"] == [[5, ["1", "2#7"]]]
    assert seen["counter"] == [[3, 0, 0]]
    assert seen["failed"] == [[1, "ALREADY_EXISTS"]], "the second update of the batch, and only that"


def test_embedded_switch() -> None:
    with served() as switch:
        check(session(switch.address))


@pytest.mark.bmv2
def test_bmv2() -> None:
    with bmv2() as address:
        check(session(address))
