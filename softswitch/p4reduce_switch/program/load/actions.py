"""Actions: a list of primitives, some of which jump to others."""

from __future__ import annotations

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir.program import Action
from p4reduce_switch.program.ir.statements import Instruction, Jump, JumpUnless
from p4reduce_switch.program.load.expressions import Expressions
from p4reduce_switch.program.load.externs import Externs
from p4reduce_switch.program.load.layout import Layout, put_id
from p4reduce_switch.program.load.limits import MAX_BITS, MAX_NODES
from p4reduce_switch.program.load.reader import Place
from p4reduce_switch.program.load.statements import Statements

JUMP, JUMP_UNLESS = "_jump", "_jump_if_zero"


def load_actions(config: Place, layout: Layout, externs: Externs) -> dict[int, Action]:
    """Return all actions by id; several may have the same name."""
    found: dict[int, Action] = {}
    for item in config["actions"].elements():
        try:
            put_id(found, item["id"], _action(item, layout, externs))
        except UnsupportedConstructError as error:
            raise UnsupportedConstructError(f"{error} (in action {item['name'].name()})") from None
    return found


def _action(item: Place, layout: Layout, externs: Externs) -> Action:
    parameters = tuple((p["name"].text(), p["bitwidth"].integer(1, MAX_BITS)) for p in item["runtime_data"].elements())
    expressions = Expressions(layout, externs.registers, tuple(width for _, width in parameters))
    statements = Statements(layout, expressions, externs)
    calls = item["primitives"].elements()
    if len(calls) > MAX_NODES:
        raise UnsupportedConstructError(f"an action of more than {MAX_NODES} primitives")
    loaded = [_primitive(call, len(calls), expressions, statements) for call in calls]
    # A primitive becomes zero or more instructions; jump targets count primitives.
    starts = [0]
    for group in loaded:
        starts.append(starts[-1] + len(group))
    code: list[Instruction] = []
    for instruction in (instruction for group in loaded for instruction in group):
        if isinstance(instruction, Jump):
            instruction = Jump(starts[instruction.target])
        elif isinstance(instruction, JumpUnless):
            instruction = JumpUnless(instruction.condition, starts[instruction.target])
        code.append(instruction)
    return Action(item["id"].integer(), item["name"].text(), parameters, tuple(code))


def _primitive(call: Place, end: int, expressions: Expressions, statements: Statements) -> list[Instruction]:
    op = call["op"].text()
    if op == JUMP:
        (target,) = call["parameters"].several(1)
        return [Jump(_offset(target, op, end))]
    if op == JUMP_UNLESS:
        condition, target = call["parameters"].pair()
        return [JumpUnless(expressions.condition(condition), _offset(target, op, end))]
    return [*statements.load(call)]


def _offset(place: Place, op: str, end: int) -> int:
    """Return the primitive that a jump leads to; after the last one is the end."""
    if place["type"].text() != "hexstr":
        place.fail(f"{op} to an offset that is not constant")
    offset = place["value"].hexadecimal()
    if offset < 0:
        place.fail(f"{op} to a negative offset")
    return min(offset, end)
