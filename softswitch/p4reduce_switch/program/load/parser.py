"""Parsers: each state's operations, and the select that leads to the next state."""

from __future__ import annotations

from collections.abc import Sequence

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir import build
from p4reduce_switch.program.ir import statements as ir
from p4reduce_switch.program.ir.expressions import FieldValue, Lookahead, Validity
from p4reduce_switch.program.ir.intervals import Data, Interval
from p4reduce_switch.program.ir.places import End, FieldRef, HeaderElement, HeaderRef, Stack, UnionElement, member
from p4reduce_switch.program.ir.program import Case, Parser, SetCase, State, ValueSet
from p4reduce_switch.program.load.expressions import Expressions, member_index
from p4reduce_switch.program.load.layout import VALID, Layout, check_bytes, find, put
from p4reduce_switch.program.load.reader import MAX_BITS, MAX_HEADER_BITS, MAX_NODES, Place, shorten
from p4reduce_switch.program.load.statements import Statements

BITS_OF_SHIFT = 8  # P4_14's shift counts bytes
ERROR_BITS = 32


def load_parser(
    config: Place, value_sets: Sequence[Place], layout: Layout, expressions: Expressions, statements: Statements
) -> tuple[Parser, tuple[ValueSet, ...]]:
    """Return the parser of a v1model program, and the value sets that its selects use."""
    places: dict[str, Place] = {}
    for item in config["parse_states"].elements():
        put(places, item["name"], item)
    if len(places) > MAX_NODES:
        raise UnsupportedConstructError(f"a parser of more than {MAX_NODES} states")
    numbers = {name: number for number, name in enumerate(places)}
    loader = _States(layout, expressions, statements, numbers)
    for declared in value_sets:
        put(loader.declared, declared["name"], declared["compressed_bitwidth"].integer(1, MAX_BITS))
    entry = config["init_state"]
    parser = Parser(
        None if entry.is_null else find(numbers, entry, "parser state"),
        tuple(loader.state(item) for item in places.values()),
    )
    for name, bits in loader.declared.items():  # the number of keys of a value set that no select uses does not matter
        loader.value_sets.setdefault(name, ValueSet(name, (bits,)))
    return parser, tuple(loader.value_sets.values())


class _States:
    """Loads states; `operations` are those of the current state, checks included."""

    def __init__(
        self, layout: Layout, expressions: Expressions, statements: Statements, numbers: dict[str, int]
    ) -> None:
        self.layout = layout
        self.expressions = expressions
        self.statements = statements
        self.numbers = numbers
        self.operations: list[ir.ParserOperation] = []
        self.declared: dict[str, int] = {}
        """The declared value sets, and the total bits of their keys."""
        self.value_sets: dict[str, ValueSet] = {}

    def state(self, item: Place) -> State:
        self.operations = []
        self.expressions.require = self._require
        for operation in item["parser_ops"].elements():
            self._operation(operation)
        cases, default = self._transitions(item)
        keys = [self._key(key) for key in item["transition_key"].elements()] if cases else []
        self.expressions.require = None
        loaded = tuple(self._case(case, [width for _, width in keys]) for case in cases)
        return State(item["name"].text(), tuple(self.operations), tuple(keys), loaded, default)

    def _require(self, stack: Stack) -> None:
        self.operations.append(ir.RequireElement(stack))

    # ---- operations

    def _operation(self, operation: Place) -> None:
        parameters = operation["parameters"].elements()
        kind = operation["op"].text()
        counts = {"extract": 1, "extract_VL": 2, "set": 2, "verify": 2, "shift": 1, "advance": 1, "primitive": 1}
        if kind not in counts:
            raise UnsupportedConstructError(f"parser operation {operation['op'].name()}")
        if len(parameters) != counts[kind]:
            operation.fail(f"{kind} takes {counts[kind]} parameters, not {len(parameters)}")
        match kind:
            case "extract":
                self._extract(parameters[0], None)
            case "extract_VL":
                self._extract(parameters[0], self.expressions.data(parameters[1]))
            case "set":
                self._set(*parameters)
            case "verify":
                condition = self.expressions.condition(parameters[0])
                error = build.cut(self.expressions.data(parameters[1]), ERROR_BITS, False)
                self.operations.append(ir.Verify(condition, error))
            case "shift":
                bits = parameters[0].integer(0, MAX_HEADER_BITS) * BITS_OF_SHIFT
                self.operations.append(ir.Advance(build.constant(bits)))
            case "advance":
                self.operations.append(ir.Advance(self.expressions.data(parameters[0])))
            case "primitive":
                self.operations += self.statements.load(parameters[0])

    def _extract(self, target: Place, bits: Data | None) -> None:
        header = self._target(target)
        check_bytes(header.type)
        if header.type.varbit and bits is None:
            raise UnsupportedConstructError(f"length expression in the varbit header type {shorten(header.type.name)}")
        self.operations.append(ir.Extract(header, bits if header.type.varbit else None))

    def _target(self, target: Place) -> HeaderRef:
        match target["type"].text():
            case "regular":
                return self.layout.header(target["value"])
            case "stack":
                return HeaderElement(self.layout.header_stack(target["value"]), End.NEXT)
            case "union_stack":
                name, which = target["value"].pair()
                stack = self.layout.union_stack(name)
                return member(UnionElement(stack, End.NEXT), member_index(stack, which))
        raise UnsupportedConstructError(f"extract to a {target['type'].name()}")

    def _set(self, target: Place, value: Place) -> None:
        if value["type"].text() == "lookahead":
            self.operations.append(self.statements.assignment(target, self._lookahead(value["value"])))
        elif self._is_varbit(value):
            self.operations += self.statements.copy_varbit(target, value)
        else:
            self.operations.append(self.statements.assignment(target, self.expressions.data(value)))

    def _is_varbit(self, value: Place) -> bool:
        if value["type"].text() != "field" or value["value"].pair()[1].value == VALID:
            return False
        return self.layout.field(value["value"]).type.varbit

    def _lookahead(self, place: Place) -> Data:
        skip_place, bits_place = place.pair()
        skip, bits = skip_place.integer(0, MAX_HEADER_BITS), bits_place.integer(1, MAX_BITS)
        self.operations.append(ir.RequireBytes((skip + bits + 7) // 8))
        return Lookahead(Interval.unsigned(bits), skip, bits)

    # ---- select

    def _transitions(self, item: Place) -> tuple[list[Place], int | None]:
        """Return the cases, and the successor if none matches."""
        cases: list[Place] = []
        default: int | None = None
        seen = False
        for transition in item["transitions"].elements():
            if not _is_default(transition):
                cases.append(transition)
            elif not seen:
                default, seen = self._next(transition), True
        return cases, default

    def _next(self, transition: Place) -> int | None:
        following = transition["next_state"]
        return None if following.is_null else find(self.numbers, following, "parser state")

    def _key(self, key: Place) -> tuple[Data, int]:
        """Return value and width of one element of a transition key."""
        kind = key["type"].text()
        if kind == "lookahead":
            return self._lookahead(key["value"]), key["value"].pair()[1].integer(1, MAX_BITS)
        if kind not in ("field", "stack_field", "union_stack_field"):
            raise UnsupportedConstructError(f"transition key of type {key['type'].name()}")
        value = self.expressions.data(key)
        if isinstance(value, Validity):
            return value, 1
        width = _field_of(value).type.width
        return build.cut(value, width, False), width

    def _case(self, case: Place, widths: list[int]) -> Case | SetCase:
        """Value and mask have each element padded to whole bytes, the last one lowest."""
        kind = case.get("type")
        if kind is not None and kind.text() == "parse_vset":
            return self._set_case(case, tuple(widths))
        value = case["value"].hexadecimal()
        masked = case.get("mask")
        mask = -1 if masked is None else masked.hexadecimal()
        tests: list[tuple[int, int]] = []
        for width in reversed(widths):
            bits = mask & (1 << width) - 1
            tests.append((bits, value & bits))
            padded = (width + 7) // 8 * 8
            value >>= padded
            mask >>= padded
        return Case(tuple(reversed(tests)), self._next(case))

    def _set_case(self, case: Place, widths: tuple[int, ...]) -> SetCase:
        place = case["value"]
        bits = find(self.declared, place, "value set")
        if case.get("mask") is not None:
            raise UnsupportedConstructError(f"a mask over parser value set {place.name()}")
        value_set = self.value_sets.setdefault(place.text(), ValueSet(place.text(), widths))
        if value_set.widths != widths or sum(widths) != bits:
            place.fail(f"value set {place.name()} is compared with keys of other widths than its own")
        return SetCase(value_set, self._next(case))


def _field_of(value: Data) -> FieldRef:
    assert isinstance(value, FieldValue)
    return value.field


def _is_default(transition: Place) -> bool:
    kind = transition.get("type")
    if kind is None:
        return bool(transition["value"].value == "default")
    return kind.text() == "default"
