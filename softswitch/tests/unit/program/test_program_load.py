"""Loading: what is refused is refused by name, and never executed wrongly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from p4reduce_switch.program import InvalidProgramError, Program, Replica, TargetOptions, UnsupportedConstructError
from rigs.entries import insert

Config = dict[str, Any]


def change(config: Config, place: str, value: Any) -> Config:
    """The program with another value at a place, as in `actions -1 name`; lists and objects are added to it."""
    *path, last = (int(part) if part.lstrip("-").isdigit() else part for part in place.split())
    inner: Any = config
    for part in path:
        inner = inner[part]
    match value:
        case list():
            inner[last] += value
        case dict():
            inner[last] |= value
        case _:
            inner[last] = value
    return config


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("actions -1 primitives", [{"op": "teleport", "parameters": []}], "primitive teleport"),
        ("pipelines 1 conditionals 0 expression value op", "<=>", "operator <=>"),
        (
            "extern_instances",
            [{"name": "box", "type": "magic", "id": 0, "attribute_values": []}],
            "extern box of type magic",
        ),
        ("meter_arrays", [{"name": "m", "id": 0, "rate_count": 3, "size": 1, "type": "bytes"}], "meter m with 3 rates"),
        ("pipelines 0 tables -1 key 0 match_type", "selector", "match kind selector of table MainIngress.mac"),
        ("__meta__ version 0", 3, "version 3"),
    ],
)
def test_refused_constructs(config: Callable[[str], Config], place: str, value: Any, message: str) -> None:
    with pytest.raises(UnsupportedConstructError, match=message):
        Program(change(config("l2"), place, value))


@pytest.mark.parametrize("text", [b"\xff\xfe", "not json", "[]", "{}", '{"header_types": []}'])
def test_files_that_are_not_programs_are_refused(text: bytes | str) -> None:
    with pytest.raises(InvalidProgramError):
        Program(text)


def test_loads_text_bytes_and_dict(config: Callable[[str], Config]) -> None:
    text = json.dumps(config("l2"))
    for form in (text, text.encode(), json.loads(text)):
        assert set(Program(form).tables) >= {"MainIngress.mac", "MainIngress.learned"}


def test_metadata_field_that_is_missing_is_named(config: Callable[[str], Config]) -> None:
    changed = config("l2")
    for kind in changed["header_types"]:
        kind["fields"] = [f for f in kind["fields"] if f[0] != "instance_type"]
    with pytest.raises(InvalidProgramError, match=r"standard_metadata\.instance_type"):
        Program(changed)


def widened(config: Config, **bits: int) -> Config:
    """The program with fields of the standard metadata of so many bits."""
    for kind in config["header_types"]:
        kind["fields"] = [[name, bits.get(name, width), signed] for name, width, signed in kind["fields"]]
    return config


@pytest.mark.parametrize("queues", [False, True], ids=["batch", "stages"])
@pytest.mark.parametrize(
    "bits",
    [
        {"ingress_port": 4},
        {"egress_port": 4},
        {"packet_length": 5, "instance_type": 1},
        {"egress_spec": 32, "egress_port": 16, "ingress_port": 70, "packet_length": 65, "instance_type": 200},
    ],
    ids=str,
)
def test_the_standard_metadata_have_the_widths_that_the_program_gives_them(
    config: Callable[[str], Config], bits: dict[str, int], queues: bool
) -> None:
    """Bits beyond a width are cut; the packet leaves by its own port all the same, as on BMv2."""
    program = Program(widened(config("standard_metadata"), **bits), TargetOptions(queues=queues))

    def cut(name: str, value: int) -> int:
        return value & (1 << bits.get(name, 32)) - 1

    sent = program.process(300, bytes(40))
    in_port, length = cut("ingress_port", 300), cut("packet_length", 40)
    out_port = in_port ^ 1
    seen = (in_port, length, cut("egress_port", out_port), cut("packet_length", 43))
    expected = b"".join(n.to_bytes(2, "big") for n in seen) + bytes(4) + bytes.fromhex("abcdef") + bytes(28)
    assert (program.depart() if queues else sent) == [(out_port, expected)]


@pytest.mark.parametrize("queues", [False, True], ids=["batch", "stages"])
@pytest.mark.parametrize(
    ("bits", "asked", "ports"), [(4, 2, [7, 9]), (4, 0x12, [7, 9]), (32, 2, [7, 9]), (32, 65538, [])]
)
def test_multicast_groups_have_the_width_that_the_program_gives_them(
    config: Callable[[str], Config], bits: int, asked: int, ports: list[int], queues: bool
) -> None:
    changed = widened(config("l2"), mcast_grp=bits, egress_rid=4)
    flood = next(action for action in changed["actions"] if action["name"] == "MainIngress.flood")
    flood["primitives"][0]["parameters"][1]["value"] = hex(asked)
    program = Program(changed, TargetOptions(queues=queues))
    program.replication.multicast_groups[2] = [Replica(7, 1), Replica(9, 0xFFFF)]
    sent = program.process(1, bytes(14))
    if queues:
        sent = [frame for _ in ports for frame in program.depart() or ()]
    assert sent == [(port, bytes(14)) for port in ports]


def deep(index: int) -> tuple[int | None, int | None]:
    """150 conditions, each inside the one before."""
    return index + 1, None


def wide(index: int) -> tuple[int | None, int | None]:
    """A parser with edges from each of two states to each of the next two: 2^100 paths, if all were written down."""
    after = index // 2 * 2 + 2
    return after, None if after == 200 else after + 1


@pytest.mark.parametrize(("count", "follow"), [(150, deep), (200, wide)])
def test_a_control_of_very_many_conditions(
    config: Callable[[str], Config], count: int, follow: Callable[[int], tuple[int | None, int | None]]
) -> None:
    many = config("l2")
    egress = next(p for p in many["pipelines"] if p["name"] == "egress")
    (condition,), (drop,) = egress["conditionals"], egress["tables"]
    names = {None: None, count: drop["name"]} | {index: f"c{index}" for index in range(count)}
    chain = []
    for index in range(count):
        yes, no = follow(index)
        chain.append({**condition, "name": f"c{index}", "id": index, "true_next": names[yes], "false_next": names[no]})
    egress["conditionals"], egress["init_table"] = chain, "c0"
    program = Program(many)
    program.tables["MainIngress.mac"].set_default("MainIngress.forward", (3,))
    assert program.process(1, bytes(14)) == [(3, bytes(14))]
    assert program.process(3, bytes(14)) == []


def nested_nots(config: Config, levels: int) -> Config:
    """The program with the condition of its egress control inside so many "not"s."""
    egress = next(p for p in config["pipelines"] if p["name"] == "egress")
    expression = egress["conditionals"][0]["expression"]
    for _ in range(levels):
        expression = {"type": "expression", "value": {"op": "not", "left": None, "right": expression}}
    egress["conditionals"][0]["expression"] = expression
    return config


@pytest.mark.parametrize("levels", [1, 2, 299, 300])
def test_deep_expressions(config: Callable[[str], Config], levels: int) -> None:
    program = Program(nested_nots(config("l2"), levels))
    program.tables["MainIngress.mac"].set_default("MainIngress.forward", (3,))
    back, on = program.process(3, bytes(14)), program.process(1, bytes(14))
    assert (back, on) == (([], [(3, bytes(14))]) if levels % 2 == 0 else ([(3, bytes(14))], []))


def test_nesting_beyond_the_limit_is_refused(config: Callable[[str], Config]) -> None:
    for levels in (5_000, 12_000):  # the first is too deep for the compiler, the second for the loader
        with pytest.raises(UnsupportedConstructError, match="nested deeper"):
            Program(nested_nots(config("l2"), levels))


def test_json_nested_deeper_than_python_reads_is_refused() -> None:
    with pytest.raises(UnsupportedConstructError, match="nested deeper"):
        Program('{"header_types": ' + "[" * 100_000 + "]" * 100_000 + "}")


def states(config: Config, count: int, transitions: Callable[[int], list[Config]]) -> Config:
    """The program with a parser of so many states; `transitions` gives those of each."""
    first = config["parsers"][0]["parse_states"][0]
    key = [{"type": "field", "value": ["standard_metadata", "ingress_port"]}]
    chain = []
    for index in range(count):
        chain.append(
            {
                "name": f"s{index}",
                "id": index,
                "parser_ops": first["parser_ops"] if index == count - 1 else [],
                "transition_key": key,
                "transitions": transitions(index),
            }
        )
    config["parsers"][0] |= {"init_state": "s0", "parse_states": chain}
    return config


def go(value: int | None, state: int | None) -> Config:
    name = None if state is None else f"s{state}"
    if value is None:
        return {"type": "default", "value": None, "mask": None, "next_state": name}
    return {"type": "hexstr", "value": hex(value), "mask": None, "next_state": name}


def forwards(program: Program) -> bool:
    """True when the frame's Ethernet header was parsed: then the table is applied to its address."""
    insert(program.tables["MainIngress.mac"], (0xAABBCCDDEEFF,), "MainIngress.forward", (3,))
    return program.process(1, bytes.fromhex("aabbccddeeff") + bytes(8)) != []


@pytest.mark.parametrize("count", [30, 150, 3000])
@pytest.mark.slow
def test_a_deep_parser(config: Callable[[str], Config], count: int) -> None:
    def transitions(index: int) -> list[Config]:
        return [] if index == count - 1 else [go(2, None), go(1, index + 1), go(None, None)]

    assert forwards(Program(states(config("l2"), count, transitions)))


def test_code_of_a_parser_with_2_to_the_100_paths_stays_small(config: Callable[[str], Config]) -> None:
    """Two ways from each state to each of the next two: 2^100 ways, if they were all written down."""

    def transitions(index: int) -> list[Config]:
        if index >= 198:
            return [go(None, 199)] if index == 198 else []
        first = index // 2 * 2 + 2
        return [go(1, first), go(None, first + 1 if first < 198 else first)]

    assert forwards(Program(states(config("l2"), 200, transitions)))


@pytest.mark.slow
def test_a_select_with_very_many_cases(config: Callable[[str], Config]) -> None:
    def transitions(index: int) -> list[Config]:
        if index == 3000:
            return []
        return [go(2 + i % 500, i) for i in range(1, 2999)] + [go(1, 3000)] if index == 0 else [go(None, None)]

    assert forwards(Program(states(config("l2"), 3001, transitions)))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("register_arrays", [{"name": "r", "id": 0, "size": 1 << 31, "bitwidth": 32}]),
        ("register_arrays", [{"name": f"r{i}", "id": i, "size": 1 << 20, "bitwidth": 32} for i in range(100)]),
        ("counter_arrays 0", {"size": 1 << 31, "is_direct": False}),
        ("meter_arrays", [{"name": "m", "id": 0, "rate_count": 2, "size": 1 << 31, "type": "bytes"}]),
        ("header_types -1 fields", [["wide", 1 << 30, False]]),
        ("header_types -1 fields", [[f"w{i}", 1 << 16, False] for i in range(9)]),
        ("header_types -1 fields", [[f"w{i}", 1, False] for i in range(70_000)]),
        (
            "actions 0 primitives",
            [
                {
                    "op": "assign",
                    "parameters": [
                        {"type": "field", "value": ["standard_metadata", "egress_spec"]},
                        {"type": "hexstr", "value": "0x" + "f" * 100_000},
                    ],
                }
            ],
        ),
    ],
    ids=[
        *("huge register", "many registers", "huge counter", "huge meter"),
        *("wide field", "wide header", "many fields", "huge number"),
    ],
)
@pytest.mark.slow
def test_sizes_are_bounded(config: Callable[[str], Config], place: str, value: Any) -> None:
    changed = change(config("l2"), place, value)
    with pytest.raises(InvalidProgramError, match=r"not in 0\.\.|more than \d+"):
        Program(changed)


def test_a_wrong_type_is_named_with_its_place(config: Callable[[str], Config]) -> None:
    changed = config("l2")
    changed["pipelines"][0]["tables"][0]["max_size"] = "many"
    with pytest.raises(InvalidProgramError, match=r"pipelines\[0\]\.tables\[0\]\.max_size: expected a whole number"):
        Program(changed)
