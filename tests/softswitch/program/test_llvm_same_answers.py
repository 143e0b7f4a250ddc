"""The compiled executor against the Python one: same programs, same frames, same answers and state, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from conformance.case import PROGRAMS
from fuzz.mutations import mutated
from p4reduce_contracts import wire
from p4reduce_switch.program import Executor, executors, load
from rigs import pipeline, random_expressions
from rigs.pipeline import PipelineRig, rank_port

pytest.importorskip("llvmlite")

TABLES = (
    "exact_two_keys",
    "l2",
    "lpm",
    "lpm_and_exact",
    "masked_key",
    "optional_key",
    "range_key",
    "ternary_priority",
    "wide_key",
)


@pytest.mark.parametrize("width", random_expressions.WIDTHS)
def test_random_expressions(width: int) -> None:
    assert [random_expressions.differences(seed, width, 20) for seed in (0, 1)] == [0, 0]


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or the error that it raises."""
    try:
        return call(*arguments)
    except Exception as error:
        return type(error), str(error)


def state_of(program: Executor) -> dict[str, Any]:
    """Everything that outlives a packet."""
    registers = {n: [r.read(i) for i in range(r.size)] for n, r in program.registers.items()}
    counters = {n: [c.read(i) for i in range(c.size)] for n, c in program.counters.items()}
    entries = {n: (list(t.entries()), t.default_action) for n, t in program.tables.items()}
    return registers | counters | entries


def random_match(source: random.Random, kind: str, width: int) -> Any:
    """An element of a match among few, so that entries meet each other and frames."""
    full = (1 << width) - 1
    value = source.choice((0, 1, 2, 3, full, full >> 1, source.getrandbits(width))) & full
    match kind:
        case "exact":
            return value
        case "lpm":
            return value, source.randint(0, width)
        case "ternary":
            return value, source.choice((0, full, full ^ (full >> 3), source.getrandbits(width)))
        case "range":
            return tuple(sorted((value, source.choice((0, full, source.getrandbits(width))))))
    return source.choice((None, value))


def random_write(source: random.Random, table: Any) -> tuple[str, tuple[Any, ...]]:
    """A write of a table's entries: its method and arguments."""
    kinds = [(key.match_type, key.bitwidth) for key in table.keys]
    match = tuple(random_match(source, kind, width) for kind, width in kinds)
    ranked = any(kind in ("ternary", "range", "optional") for kind, _ in kinds)
    priority = source.randint(1, 4) if ranked else 0
    known = list(table.entries())
    if known and source.random() < 0.6:
        entry = source.choice(known)
        match, priority = entry.match, entry.priority
    action = source.choice(sorted(table.action_params))
    arguments = tuple(source.getrandbits(width) for _, width in table.action_params[action])
    method = source.choice(("insert", "insert", "insert", "modify", "delete", "set_default"))
    if method == "set_default":
        return method, (action, arguments)
    return method, (match, priority) if method == "delete" else (match, priority, action, arguments)


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_change_between_frames(name: str) -> None:
    config = (PROGRAMS / f"{name}.json").read_bytes()
    python, compiled = load(config, "python"), load(config, "llvm")
    source = random.Random(name)
    for _ in range(600):
        table = source.choice(sorted(python.tables))
        if python.tables[table].keys:
            method, arguments = random_write(source, python.tables[table])
            written = [outcome(getattr(program.tables[table], method), *arguments) for program in (python, compiled)]
            assert written[0] == written[1], (method, arguments)
        if source.random() < 0.7:
            frame = bytes(source.choice((0, 0, 1, 2, 3, 255, source.randrange(256))) for _ in range(40))
            assert outcome(python.process, 1, frame) == outcome(compiled.process, 1, frame)
    assert state_of(python) == state_of(compiled)


def test_very_many_entries() -> None:
    """The hash table grows and shrinks, and the scan's order is kept."""
    for name, match in (("l2", lambda i: (i * 7919,)), ("lpm", lambda i: ((i << 16 & 0xFFFFFFFF, 16),))):
        program = load((PROGRAMS / f"{name}.json").read_bytes(), "llvm")
        table = max(program.tables.values(), key=lambda found: found.max_size * (len(found.keys) == 1))
        action = sorted(table.action_params)[0]
        arguments = tuple(0 for _ in table.action_params[action])
        count = min(2000, table.max_size)
        for index in range(count):
            table.insert(match(index), 0, action, arguments)
        for index in range(0, count, 2):
            table.delete(match(index), 0)
        assert sum(1 for _ in table.entries()) == count // 2


@pytest.mark.parametrize("geometry", ["small", "default"])
def test_mutated_frames_of_a_job(geometry: str) -> None:
    """Rounds of the aggregation program among frames with faults, in both executors."""
    source = random.Random(geometry)
    rigs = [PipelineRig(geometry, 4, executor=name) for name in sorted(executors)]
    first = rigs[0]
    block = 4 * first.geometry.block_words
    sent: list[bytes] = []
    for step in range(1500):
        rank, slot, round_ = source.randrange(4), source.randrange(pipeline.SLOT_COUNT), step // 24
        blocks = {c: source.randbytes(block) for c in range(first.geometry.columns) if source.random() < 0.7}
        keys = tuple(source.choice((wire.KEY_NONE, source.getrandbits(32))) for _ in range(first.geometry.columns))
        sent.append(first.frame(rank, first.contribution(slot, round_, keys, blocks)))
        frame = mutated(source, sent[-32:], 4) if source.random() < 0.4 else sent[-1]
        port = rank_port(rank) if source.random() < 0.95 else source.randrange(8)
        answers = [outcome(rig.program.process, port, frame) for rig in rigs]
        assert answers[0] == answers[1], (step, port, frame.hex())
    states = [state_of(rig.program) for rig in rigs]
    assert states[0] == states[1]
    assert len(first.drops()) > 5
