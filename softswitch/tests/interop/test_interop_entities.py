"""Two P4Runtime clients that share no code with ours add, read, modify and remove each kind of entity.

finsy and p4runtime-shell have an environment each: `make test` sets up .venv/interop and .venv/shell. The same is asked
of BMv2, where it is there: what it does otherwise is said here.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rigs.limits import LIMIT_S
from rigs.p4rt import bmv2, served

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("every_entity")
CLIENTS = {"finsy": ROOT / ".venv/interop/bin/python", "shell": ROOT / ".venv/shell/bin/python"}

FIRST, SECOND = [1, 2, 3, 4], [2, 3, 4, 5]
SEEN: dict[str, dict[str, Any]] = {
    "finsy": {
        "table": [[["send", {"port": 1}]], [["send", {"port": 2}]], []],
        "refused": [[1, "ALREADY_EXISTS"]],
        "member": [[[1, {"port": 1}], [2, {"port": 2}]], [[1, {"port": 1}], [2, {"port": 9}]], []],
        "profile_group": [[[3, 8, [[1, 2], [2, [1, 4]]]]], [[3, 8, [[2, 1]]]], []],
        "indirect": [[{"member": None, "group": 3}], [{"member": 1, "group": None}], []],
        "one_shot": [[[[1, {"port": 1}], [2, {"port": 2}]]], [[[3, {"port": 3}]]], []],
        "counter": [[[5, 50]], [[0, 0]]],
        "direct_counter": [[[5, 50]], [[0, 0]]],
        "meter": [[FIRST], [SECOND], [None]],
        "rates_of_an_entry": [[SECOND]],
        "direct_meter": [[FIRST], [SECOND], [None]],
        "register": [[0xFFFFFFFF], [0]],
        "value_set": [[[3, 4]], [[5]], [[]]],
        "group": [[[5, "1"]], [[5, "2#7"]], []],
        "session": [[[6, "1"]], [[6, "2"]], []],
        "digest": [[[1, 5]], [[2, 6]], "NOT_FOUND"],
        "idle": [[[3600, True]], []],
        "idle_told": [[[7, 255], 50_000_000]],
    },
    "shell": {
        "table": [[1], [2], []],
        "member": [[[1, 1], [2, 2]], [[1, 1], [2, 9]], []],
        "profile_group": [[[3, 8, [[1, 2, 0], [2, 1, 4]]]], [[3, 8, [[2, 1, 0]]]], []],
        "indirect": [[[None, 3]], [[1, None]], []],
        "one_shot": [[[[1, 1], [2, 2]]], [[[3, 3]]], []],
        "counter": [[[5, 50]], [[0, 0]]],
        "direct_counter": [[[5, 50]], [[0, 0]]],
        "meter": [[FIRST], [SECOND], [[0, 0, 0, 0]]],
        "direct_meter": [[FIRST], [SECOND], [[0, 0, 0, 0]]],
        "group": [[[[1, 0]]], [[[2, 7]]], []],
        "session": [[[[1, 0]]], [[[2, 0]]], []],
        "digest": [[[1, 5]], [[2, 6]], "NOT_FOUND"],
        "idle": [[[3600, True]], []],
        "idle_told": [[7, 50_000_000]],
    },
}
"""Kind of entity -> what is read after it was added, after it was modified, and after it was removed."""
OTHERWISE_ON_BMV2: dict[str, dict[str, Any]] = {
    "finsy": {
        # a member of weight 2 is shown twice, and of watch ports only that of the last member
        "member": [[[1, {"port": 1}], [2, {"port": 2}], [1, {"port": 1}]], *SEEN["finsy"]["member"][1:]],
        "profile_group": [[[3, 8, [[1, 2], [2, 1]]]], *SEEN["finsy"]["profile_group"][1:]],
        "register": ["UNIMPLEMENTED"] * 2,
        "value_set": ["UNIMPLEMENTED"] * 3,
    },
    "shell": {
        "member": [[[1, 1], [2, 2], [1, 1]], *SEEN["shell"]["member"][1:]],
        "profile_group": [[[3, 8, [[1, 2, 0], [2, 1, 0]]]], *SEEN["shell"]["profile_group"][1:]],
    },
}


def session(client: str, address: str) -> dict[str, Any]:
    if not CLIENTS[client].exists():
        pytest.skip(f"{client} is not installed: run `make test`")
    script = Path(__file__).with_name(f"{client}_entities.py")
    command = [CLIENTS[client], script, address, PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.parametrize("client", sorted(CLIENTS))
@pytest.mark.processes
def test_embedded_switch(client: str) -> None:
    with served() as switch:
        assert session(client, switch.address) == SEEN[client]


@pytest.mark.bmv2
@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_bmv2(client: str) -> None:
    with bmv2() as address:
        assert session(client, address) == SEEN[client] | OTHERWISE_ON_BMV2[client]
