"""Loads actions: primitives of the JSON become statements of the IR, and some of them jump to others."""

from __future__ import annotations

from collections.abc import Callable

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir import build
from p4reduce_switch.program.ir import statements as ir
from p4reduce_switch.program.ir.expressions import Hash
from p4reduce_switch.program.ir.intervals import Data, Interval
from p4reduce_switch.program.ir.places import FieldRef, HeaderRef, HeaderStack, Stack, union_of
from p4reduce_switch.program.ir.program import Action, Primitive
from p4reduce_switch.program.ir.statements import Instruction, Jump, JumpUnless
from p4reduce_switch.program.load.expressions import Expressions, unwrapped
from p4reduce_switch.program.load.externs import Externs
from p4reduce_switch.program.load.layout import Layout, find, put_id
from p4reduce_switch.program.load.reader import MAX_BITS, MAX_NODES, Place, shorten

LIST_BITS, SESSION_BITS, LENGTH_BITS, OFFSET_BITS = 16, 15, 32, 64


class Statements:
    """Loads primitive calls."""

    def __init__(self, layout: Layout, expressions: Expressions, externs: Externs) -> None:
        self.layout = layout
        self.expressions = expressions
        self.externs = externs

    def load(self, call: Place) -> list[ir.Statement]:
        """Return the statements of a primitive call."""
        op = call["op"].text()
        loader = _LOADERS.get(op)
        if loader is None:
            raise UnsupportedConstructError(f"primitive {call['op'].name()}")
        count, method = loader
        parameters = call["parameters"].elements()
        if count is not None and len(parameters) != count:
            call.fail(f"primitive {op} takes {count} parameters, not {len(parameters)}")
        return [*method(self, *parameters)]

    # ---- assignments

    def assignment(self, target: Place, value: Data) -> ir.Assignment:
        """Return the assignment of `value` to a field, a field of a stack element, or a register cell."""
        target = unwrapped(target)
        field = self.expressions.field(target)
        if field is not None:
            return self._store(field, value)
        if target["type"].text() == "register":
            name, index = target["value"].pair()
            return self._register_write(name, index, value)
        raise UnsupportedConstructError(f"assignment to {target['type'].name()}")

    def _store(self, field: FieldRef, value: Data) -> ir.Store:
        kind = field.type
        if kind.varbit:
            raise UnsupportedConstructError(f"assignment of a number to the varbit field {shorten(kind.name)}")
        return ir.Store(field, build.cut(value, kind.width, kind.signed))

    def _assign(self, target: Place, value: Place) -> list[ir.Statement]:
        return [self.assignment(target, self.expressions.data(value))]

    def copy_varbit(self, target: Place, value: Place) -> list[ir.Statement]:
        fields = []
        for place in (target, value):
            if place["type"].text() != "field":
                raise UnsupportedConstructError(f"assign_VL with a {place['type'].name()}")
            field = self.layout.field(place["value"])
            if not field.type.varbit:
                place.fail("assign_VL with a field that is not varbit")
            fields.append(field)
        return [ir.CopyVarbit(*fields)]

    def _copy_header(self, target: Place, value: Place) -> list[ir.Statement]:
        to, source = self.expressions.header(target), self.expressions.header(value)
        if not to.type.same_as(source.type):
            value.fail("a header is copied to one of another type")
        return [ir.CopyHeader(to, source)]

    def _copy_union(self, target: Place, value: Place) -> list[ir.Statement]:
        to, source = self.expressions.union(target), self.expressions.union(value)
        if not union_of(to).same_as(union_of(source)):
            value.fail("a union is copied to one of another type")
        return [ir.CopyUnion(to, source)]

    def _copy_stack(self, target: Place, value: Place) -> list[ir.Statement]:
        to, source = self.expressions.stack(target), self.expressions.stack(value)
        if isinstance(to, HeaderStack):
            same = isinstance(source, HeaderStack) and to.type.same_as(source.type)
        else:
            same = not isinstance(source, HeaderStack) and to.elements[0].same_as(source.elements[0])
        if not same or to.size != source.size:
            value.fail("a stack is copied to one of another type or size")
        return [ir.CopyStack(to, source)]

    # ---- validity

    def _amount(self, stack: Stack, count: Place) -> int:
        number = self.expressions.data(count).interval.constant
        if number is None:
            raise UnsupportedConstructError(f"push or pop of {shorten(stack.name)} by an amount that is not constant")
        if number < 0:
            count.fail("the amount is negative")
        return min(number, stack.size)

    def _shift(self, kind: type[ir.PushFront | ir.PopFront], target: Place, count: Place) -> list[ir.Statement]:
        stack = self.expressions.stack(target)
        return [kind(stack, self._amount(stack, count))]

    # ---- packet operations

    def _mark_to_drop(self, *metadata: Place) -> list[ir.Statement]:
        """The argument may be a copy of standard_metadata; the default is standard_metadata itself."""
        if len(metadata) > 1:
            metadata[1].fail("mark_to_drop takes one parameter")
        argument = self.expressions.header(metadata[0]) if metadata else None
        found: list[ir.Statement] = []
        for name, value in (
            ("standard_metadata.egress_spec", self.layout.target.drop_port),
            ("intrinsic_metadata.mcast_grp", 0),
        ):
            field = self.layout.target_field(name)
            if field is not None:
                field = _counterpart(field, argument) if argument is not None else field
                found.append(self._store(field, build.constant(value)))
        return found

    def _number(self, place: Place, bits: int) -> Data:
        return build.cut(self.expressions.data(place), bits, False)

    def _clone(self, session: Place, field_list: Place) -> list[ir.Statement]:
        return [ir.Clone(self._number(session, SESSION_BITS), self._number(field_list, LIST_BITS))]

    # ---- externs

    def _count(self, counter: Place, index: Place) -> list[ir.Statement]:
        found = find(self.externs.counters, counter["value"], "counter")
        return [ir.Count(found, self.expressions.data(index))]

    def _register_read(self, target: Place, register: Place, index: Place) -> list[ir.Statement]:
        found = find(self.externs.registers, register["value"], "register")
        cell = build.result(Interval.unsigned(found.bitwidth))
        return [ir.RegisterRead(found, self.expressions.data(index), self.assignment(target, cell))]

    def _write_register(self, register: Place, index: Place, value: Place) -> list[ir.Statement]:
        return [self._register_write(register["value"], index, self.expressions.data(value))]

    def _register_write(self, name: Place, index: Place, value: Data) -> ir.RegisterWrite:
        found = find(self.externs.registers, name, "register")
        return ir.RegisterWrite(found, self.expressions.data(index), build.cut(value, found.bitwidth, False))

    def _execute_meter(self, meter: Place, index: Place, target: Place) -> list[ir.Statement]:
        found = find(self.externs.meters, meter["value"], "meter")
        into = self.assignment(target, build.result(Interval(0, 2)))
        return [ir.MeterExecute(found, self.expressions.data(index), into)]

    def _hash(self, target: Place, base: Place, calculation: Place, size: Place) -> list[ir.Statement]:
        """Base and size are 64 bits wide on BMv2, and a size of 0 counts as 1."""
        found = find(self.externs.calculations, calculation["value"], "calculation")
        start, modulus = self._number(base, OFFSET_BITS), self._number(size, OFFSET_BITS)
        constant = modulus.interval.constant
        whole = constant is not None and constant >= 1 << found.algorithm.bits
        largest = modulus.interval.high
        assert start.interval.high is not None and largest is not None
        most = (1 << found.algorithm.bits) - 1 if whole else max(0, largest - 1)
        interval = Interval(start.interval.low, start.interval.high + most)
        return [self.assignment(target, Hash(interval, found, start, None if whole else modulus))]

    def _random(self, target: Place, low: Place, high: Place) -> list[ir.Statement]:
        least, most = self.expressions.data(low), self.expressions.data(high)
        number = build.result(Interval(least.interval.low, most.interval.high))
        return [ir.RandomNumber(least, most, self.assignment(target, number))]

    # ---- checks and messages

    def _log(self, text: Place, values: Place) -> list[ir.Statement]:
        # p4c writes an object for a message without values, which BMv2 reads as an empty list.
        given = [] if values["value"].is_empty_object else values["value"].elements()
        items = tuple(self.expressions.data(item) for item in given)
        return [ir.Log(text["value"].text(), items)]


def _counterpart(field: FieldRef, argument: HeaderRef) -> FieldRef:
    """Return the field of that name in `argument`; the default if there is no argument."""
    fields = argument.type.fields
    offset = next((other.offset for other in fields if other.name == field.type.name), None)
    return field if offset is None else FieldRef(argument, offset)


_LOADERS: dict[str, tuple[int | None, Callable[..., list[ir.Statement]]]] = {
    "assign": (2, Statements._assign),
    "modify_field": (2, Statements._assign),
    "assign_VL": (2, Statements.copy_varbit),
    "assign_header": (2, Statements._copy_header),
    "copy_header": (2, Statements._copy_header),
    "assign_union": (2, Statements._copy_union),
    "assign_header_stack": (2, Statements._copy_stack),
    "assign_union_stack": (2, Statements._copy_stack),
    "add_header": (1, lambda self, target: [ir.AddHeader(self.expressions.header(target))]),
    "remove_header": (1, lambda self, target: [ir.RemoveHeader(self.expressions.header(target))]),
    "push": (2, lambda self, stack, count: self._shift(ir.PushFront, stack, count)),
    "pop": (2, lambda self, stack, count: self._shift(ir.PopFront, stack, count)),
    "mark_to_drop": (None, Statements._mark_to_drop),
    "drop": (None, Statements._mark_to_drop),
    "exit": (0, lambda self: [ir.Exit()]),
    "no_op": (0, lambda self: []),
    "clone_ingress_pkt_to_egress": (2, Statements._clone),
    "clone_egress_pkt_to_egress": (2, Statements._clone),
    "resubmit": (1, lambda self, fields: [ir.Resubmit(self._number(fields, LIST_BITS))]),
    "recirculate": (1, lambda self, fields: [ir.Recirculate(self._number(fields, LIST_BITS))]),
    "generate_digest": (2, lambda self, _receiver, digest: [ir.SendDigest(self._number(digest, LIST_BITS))]),
    "truncate": (1, lambda self, length: [ir.Truncate(self._number(length, LENGTH_BITS))]),
    "count": (2, Statements._count),
    "register_read": (3, Statements._register_read),
    "register_write": (3, Statements._write_register),
    "execute_meter": (3, Statements._execute_meter),
    "modify_field_with_hash_based_offset": (4, Statements._hash),
    "modify_field_rng_uniform": (3, Statements._random),
    "assert": (1, lambda self, condition: [ir.Assert(self.expressions.condition(condition))]),
    "assume": (1, lambda self, condition: [ir.Assert(self.expressions.condition(condition))]),
    "log_msg": (2, Statements._log),
}


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
    primitives = tuple(
        Primitive(start, call["op"].text(), call.source()) for start, call in zip(starts, calls, strict=False)
    )
    return Action(item["id"].integer(), item["name"].text(), parameters, tuple(code), primitives, item.source())


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
