"""Every string and number of a pipeline is data: none becomes code, whatever stands in it.

Each place of the JSON (places that differ in list indices alone count once) is replaced by strings that would
betray themselves as code, and by numbers and values of every other type. The program is then refused with a
ProgramError, or it loads, and nothing that came from the string stands in the generated code. tests/fuzz changes
several places at once, and the P4Info that comes with a program.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.case import PROGRAMS
from conformance.corpus import GROUPS as CASES
from conformance.corpus import OTHER_PROGRAM
from p4reduce_switch.program import ProgramError
from p4reduce_switch.program.ir.features import features
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.build import emit
from p4reduce_switch.program.llvm.host_abi import HostAbi
from p4reduce_switch.program.load import load_program
from p4reduce_switch.program.memory import StateOffsets

GROUPS = sorted({PROGRAMS / f"{OTHER_PROGRAM.get(name, name)}.json" for name in CASES})
"""The programs that hold a group of constructs each."""
CANARY = "canary_of_the_test"
CALL = f"__import__('builtins').{CANARY}()"
PAYLOADS = [
    CALL,
    f"0) | {CALL} | (0",
    f"x\n {CALL}\n#",
    f"x\r {CALL}\r#",
    f'"+{CALL}+"',
    -1,
    1 << 20,
    1 << 70,
    10**5000,
    True,
    1.5,
    float("nan"),
    None,
    [CALL],
    {"op": CALL, "type": "expression", "value": CALL},
]
TRIED = 3
"""Payloads at each place, in turn: a call in a string, a number, and another value."""
Place = tuple[str | int, ...]


def places(json_: Any, at: Place = ()) -> Iterator[Place]:
    """Every string and number, by the keys and indices that lead to it."""
    if isinstance(json_, dict):
        for key, value in json_.items():
            yield from places(value, (*at, key))
    elif isinstance(json_, list):
        for index, value in enumerate(json_):
            yield from places(value, (*at, index))
    else:
        yield at


def shape(config: Any, place: Place) -> tuple[Any, ...]:
    """Places of one shape are compiled alike: indices do not count, but the construct they stand in does."""
    parts: list[Any] = []
    for key in place:
        parts.append("*" if isinstance(key, int) else key)
        if isinstance(config, dict):
            parts.append((config.get("op"), config.get("type"), config.get("match_type")))
        config = config[key]
    return tuple(str(part) for part in parts)


def distinct_places(paths: list[Path]) -> list[tuple[Path, list[Place]]]:
    """The places of each program whose shape no program before it has."""
    seen: set[tuple[Any, ...]] = set()
    result = []
    for path in paths:
        config = json.loads(path.read_text())
        unique = {shape(config, place): place for place in places(config)}
        result.append((path, [place for key, place in unique.items() if key not in seen]))
        seen |= unique.keys()
    return result


@contextmanager
def replaced(config: Any, place: Place, value: Any) -> Iterator[Any]:
    """The program with another value at `place`; `config` is as before afterwards."""
    inner = config
    for key in place[:-1]:
        inner = inner[key]
    before, inner[place[-1]] = inner[place[-1]], value
    try:
        yield config
    finally:
        inner[place[-1]] = before


def code_of(config: Any) -> str:
    """The program in LLVM's language."""
    program = load_program(config)
    layout = Layout(program, in_memory=features(program).in_stages)
    return str(emit(program, layout, StateOffsets(program), HostAbi(program, layout)).ir)


@pytest.fixture
def canary(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The function that the payloads call when they are executed."""
    calls: list[str] = []
    monkeypatch.setattr(builtins, CANARY, lambda: calls.append("called"), raising=False)
    return calls


DISTINCT = distinct_places(GROUPS)


def test_the_mutated_places_cover_the_format() -> None:
    assert sum(len(found) for _, found in DISTINCT) > 500


@pytest.mark.fault("code in the strings and numbers of a pipeline: data, or a ProgramError")
@pytest.mark.parametrize(("path", "found"), DISTINCT, ids=lambda value: getattr(value, "stem", ""))
@pytest.mark.slow
def test_no_string_or_number_becomes_code(path: Path, found: list[Place], canary: list[str]) -> None:
    original = json.loads(path.read_text())
    for number, place in enumerate(found):
        for step in range(TRIED):
            payload = PAYLOADS[(number + step * len(PAYLOADS) // TRIED) % len(PAYLOADS)]
            with replaced(original, place, payload) as config:
                try:
                    load_program(config)
                    if step == 0:
                        assert CANARY not in code_of(config), f"{place}: {payload!r} stands in the code"
                except ProgramError:
                    continue
                finally:
                    assert not canary, f"{place}: {payload!r} was executed"
