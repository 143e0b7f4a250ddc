"""Loading: what is refused is refused by name, and never executed wrongly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from p4reduce_switch.program import InvalidProgram, Program, UnsupportedConstruct

Config = dict[str, Any]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("profile", "action profile or selector action_profile_0"),
        ("valueset", "parser value set Parse.known"),
        ("random_hash", "hash algorithm random"),
    ],
)
def test_refused_programs(load: Callable[[str], Program], name: str, message: str) -> None:
    with pytest.raises(UnsupportedConstruct, match=message):
        load(name)


def unknown_primitive(config: Config) -> None:
    config["actions"][-1]["primitives"].append({"op": "teleport", "parameters": []})


def unknown_operator(config: Config) -> None:
    config["pipelines"][1]["conditionals"][0]["expression"]["value"]["op"] = "<=>"


def extern_instance(config: Config) -> None:
    config["extern_instances"] = [{"name": "box", "type": "magic", "id": 0, "attribute_values": []}]


def three_rates(config: Config) -> None:
    config["meter_arrays"] = [{"name": "m", "id": 0, "rate_count": 3, "size": 1, "type": "bytes"}]


def selector_key(config: Config) -> None:
    config["pipelines"][0]["tables"][-1]["key"][0]["match_type"] = "selector"


def newer_format(config: Config) -> None:
    config["__meta__"]["version"] = [3, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (unknown_primitive, "primitive teleport"),
        (unknown_operator, "operator <=>"),
        (extern_instance, "extern box of type magic"),
        (three_rates, "meter m with 3 rates"),
        (selector_key, "match kind selector of table MyIngress.mac"),
        (newer_format, "version 3"),
    ],
)
def test_refused_constructs(
    config: Callable[[str], Config], change: Callable[[Config], None], message: str
) -> None:
    changed = config("l2")
    change(changed)
    with pytest.raises(UnsupportedConstruct, match=message):
        Program.load(changed)


@pytest.mark.parametrize("text", [b"\xff\xfe", "not json", "[]", "{}", '{"header_types": []}'])
def test_what_is_no_program_is_refused(text: bytes | str) -> None:
    with pytest.raises(InvalidProgram):
        Program.load(text)


def test_loads_text_bytes_and_dict(config: Callable[[str], Config]) -> None:
    text = json.dumps(config("l2"))
    for form in (text, text.encode(), json.loads(text)):
        assert set(Program.load(form).tables) >= {"MyIngress.mac", "MyIngress.learned"}


def test_metadata_field_that_is_missing_is_named(config: Callable[[str], Config]) -> None:
    changed = config("l2")
    for kind in changed["header_types"]:
        kind["fields"] = [f for f in kind["fields"] if f[0] != "instance_type"]
    with pytest.raises(InvalidProgram, match=r"standard_metadata\.instance_type"):
        Program.load(changed)


def test_deep_nesting_continues_in_another_function(config: Callable[[str], Config]) -> None:
    """Python takes 100 levels of indentation; a control may have more."""
    deep = config("l2")
    egress = next(p for p in deep["pipelines"] if p["name"] == "egress")
    (condition,), (drop,) = egress["conditionals"], egress["tables"]
    chain = []
    for index in range(150):
        follow = f"c{index + 1}" if index < 149 else drop["name"]
        chain.append({**condition, "name": f"c{index}", "id": index, "true_next": follow, "false_next": None})
    egress["conditionals"], egress["init_table"] = chain, "c0"
    program = Program.load(deep)
    program.tables["MyIngress.mac"].set_default("MyIngress.forward", (3,))
    assert program.process(1, bytes(14)) == [(3, bytes(14))]
    assert program.process(3, bytes(14)) == []


def test_nesting_beyond_what_python_takes_is_refused(config: Callable[[str], Config]) -> None:
    deep = config("l2")
    egress = next(p for p in deep["pipelines"] if p["name"] == "egress")
    expression = egress["conditionals"][0]["expression"]
    for _ in range(400):
        expression = {"type": "expression", "value": {"op": "not", "left": None, "right": expression}}
    egress["conditionals"][0]["expression"] = expression
    with pytest.raises(UnsupportedConstruct, match="nested deeper"):
        Program.load(deep)
