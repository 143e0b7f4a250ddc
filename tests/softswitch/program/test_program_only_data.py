"""Every string and number of a pipeline is data: none becomes code, whatever stands in it.

Each place of the JSON (places that differ in list indices alone count once) is replaced by strings that would
betray themselves as code, and by numbers and values of every other type. The program is then refused with a
ProgramError, or it loads, and nothing that came from the string stands in the generated code. Hypothesis does
the same to several places at once, and to the P4Info that comes with a program.
"""

from __future__ import annotations

import builtins
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.case import PROGRAMS
from conformance.corpus import GROUPS as CASES
from conformance.corpus import OTHER_PROGRAM
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.schema import parse_p4info
from p4reduce_switch.p4runtime import RequestError, pipeline
from p4reduce_switch.p4runtime.idle_timeouts import IdleTimeouts
from p4reduce_switch.program import Program, ProgramError
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
TRIED = 5
"""Payloads at each place, in turn; several places at once are tried by hypothesis."""
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


def value_at(config: Any, place: Place) -> Any:
    for key in place:
        config = config[key]
    return config


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
    """What the payloads call when they are executed."""
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


TREES = [json.loads(path.read_text()) for path in GROUPS]
PLACES = [list(places(tree)) for tree in TREES]
VALUES = st.one_of(
    st.sampled_from(PAYLOADS),
    st.integers(),
    st.integers(0, 300),
    st.integers(0, 1 << 40).map(hex),
    st.integers(-(1 << 40), 0).map(hex),
    st.floats(),
    st.text(max_size=8),
    st.booleans(),
    st.lists(st.integers(0, 3), max_size=3),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
@pytest.mark.slow
def test_random_changes_in_several_places(canary: list[str], data: st.DataObject) -> None:
    """Random values, and values that stand elsewhere in the program: names of other things, other types, indices."""
    number = data.draw(st.integers(0, len(TREES) - 1))
    config, known = TREES[number], PLACES[number]
    originals = st.sampled_from(known).map(lambda place: value_at(config, place))
    changes = data.draw(st.lists(st.tuples(st.sampled_from(known), VALUES | originals), min_size=1, max_size=6))
    with ExitStack() as stack:
        for place, value in changes:
            stack.enter_context(replaced(config, place, value))
        try:
            assert CANARY not in code_of(config)
            program = Program(config)
            for frame in (b"", bytes(64), b"\xff" * 80, bytes(range(90))):
                program.process(1, frame)
        except ProgramError:
            return
        finally:
            assert not canary


P4INFOS = sorted(PROGRAMS.glob("*.p4info.txtpb"))[::6]


def scalars(message: Any) -> list[tuple[Any, Any]]:
    """(message, field) of every string and number in a protobuf message."""
    found = []
    for field, value in message.ListFields():
        if isinstance(value, (str, int)):
            found.append((message, field))
        elif hasattr(value, "ListFields"):
            found += scalars(value)
        elif field.type == field.TYPE_MESSAGE and not hasattr(value, "items"):
            found += [place for part in value for place in scalars(part)]
    return found


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
@pytest.mark.slow
def test_a_mutated_p4info_is_refused_or_accepted_as_data(canary: list[str], data: st.DataObject) -> None:
    """A P4Info with wrong strings and numbers is refused, or goes with the program."""
    path = data.draw(st.sampled_from(P4INFOS))
    p4info = parse_p4info(path.read_text())
    known = scalars(p4info)
    for index in data.draw(st.lists(st.integers(0, len(known) - 1), min_size=1, max_size=4)):
        message, field = known[index]
        values = (
            st.sampled_from([CALL, PAYLOADS[2], "", "NoAction"]) | st.text(max_size=6)
            if field.type == field.TYPE_STRING
            else st.sampled_from([0, 1, 2, 5])
        )
        with suppress(TypeError, ValueError):
            setattr(message, field.name, data.draw(values))
    program = path.with_name(path.name.removesuffix(".p4info.txtpb") + ".json").read_bytes()
    config = p4r.ForwardingPipelineConfig(p4info=p4info, p4_device_config=program)
    with suppress(RequestError):
        pipeline.load(config, IdleTimeouts(lambda _: True, threading.Condition()))
    assert not canary


@pytest.mark.fault("the mask that ran a command: refused")
def test_a_mask_with_code_is_refused(canary: list[str]) -> None:
    """The hole that was found: a table key's mask was pasted into the generated code."""
    config = json.loads((PROGRAMS / "l2.json").read_text())
    for table in config["pipelines"][0]["tables"]:
        for key in table["key"]:
            key["mask"] = CALL
    with pytest.raises(ProgramError, match="not a BMv2 JSON"):
        Program(config)
    assert not canary


def test_an_action_name_never_becomes_code(canary: list[str]) -> None:
    """The second one: an action's name was written behind its function as a comment, line breaks included."""
    config = json.loads((PROGRAMS / "l2.json").read_text())
    for action in config["actions"]:
        action["name"] += f"\n {CALL}"
    for table in (t for p in config["pipelines"] for t in p["tables"]):
        table["next_tables"] = {
            name + f"\n {CALL}" if not name.startswith("__") else name: following
            for name, following in table["next_tables"].items()
        }
    program = Program(config)
    program.process(1, bytes(64))
    assert CANARY not in code_of(config)
    assert not canary
