"""BMv2 JSON expressions to Python expressions."""

from __future__ import annotations

from typing import Any

from .errors import InvalidProgram, UnsupportedConstruct
from .layout import Layout, Stack
from .references import HeaderRef, UnionRef
from .values import Value, binary, constant, either, saturate, unsigned, wrap

Json = dict[str, Any]

ARITHMETIC = {"+", "-", "*", "&", "|", "^", "<<", ">>"}
COMPARISON = {"<", ">", "<=", ">="}
BOOLEAN_OPS = {"and", "or", "not", "==", "!=", "valid", "valid_union", "d2b"} | COMPARISON


class Expressions:
    """Compiles expressions; `widths` are those of the enclosing action's parameters (`a0`, `a1`, …).

    `guards` collects conditions that a parser must check before it evaluates what was compiled.
    """

    def __init__(
        self,
        layout: Layout,
        registers: dict[str, tuple[str, int, int]],
        widths: tuple[int, ...] = (),
        arguments: tuple[int, ...] | None = None,
    ) -> None:
        self.layout = layout
        self.registers = registers  # name -> (name of its list in the generated module, size, bitwidth)
        self.widths = widths
        self.arguments = arguments  # the parameters' values where they are known at load
        self.guards: list[str] | None = None

    def kind(self, json: Json) -> str:
        """'data', 'bool', 'header', 'union' or 'stack'."""
        match json["type"]:
            case "bool":
                return "bool"
            case "header":
                return "header"
            case "header_union":
                return "union"
            case "header_stack" | "header_union_stack":
                return "stack"
            case "expression":
                inner = json["value"]
                if "op" not in inner:
                    return self.kind(inner)
                op = inner["op"]
                if op == "?":
                    return self.kind(inner["left"])
                if op in BOOLEAN_OPS:
                    return "bool"
                if op in ("dereference_header_stack", "dereference_stack", "access_union_header"):
                    return "header"
                return "union" if op == "dereference_union_stack" else "data"
        return "data"

    # ---- integers

    def data(self, json: Json) -> Value:
        """An integer expression."""
        value = json["value"]
        match json["type"]:
            case "hexstr":
                return constant(int(value, 16))
            case "field":
                if isinstance(value[0], dict):  # p4c's JSON for stack[index].isValid(), which BMv2 refuses too
                    raise UnsupportedConstruct("the validity of a stack element whose index is not a constant")
                return self.field(value[0], value[1])
            case "local" | "runtime_data":
                if self.arguments is not None:
                    return constant(self.arguments[value])
                return unsigned(f"a{value}", self.widths[value])
            case "stack_field":
                return self._last_field(self.stack(value[0]), value[1])
            case "union_stack_field":
                return self._last_union_field(self.stack(value[0]), value[1], value[2])
            case "register":
                return self._register(value)
            case "bool":
                return constant(int(value))
            case "expression":
                if "op" not in value:
                    return self.data(value)
                if self.kind(json) == "bool":
                    return self._number_of(json)
                return self._operation(value)
        raise UnsupportedConstruct(f"expression of type {json['type']}")

    def field(self, header_name: str, field_name: str) -> Value:
        """The value of a field, or of the hidden field $valid$."""
        header = self.layout.header(header_name)
        if field_name == "$valid$":
            return unsigned(f"f[{header.valid}]", 1)
        return self.field_of(HeaderRef(header.type, str(header.base)), header.type.field(field_name).offset)

    def field_of(self, ref: HeaderRef, offset: int) -> Value:
        """The value of the field at `offset` of a header."""
        if offset == len(ref.type.fields):
            return unsigned(ref.valid, 1)
        kind = ref.type.fields[offset]
        code = ref.slot(offset)
        if ref.start.isdigit():
            self.layout.used.add(int(ref.start) + offset)
        if kind.varbit:
            return Value(code)
        if kind.signed:
            return Value(code, -(1 << (kind.width - 1)), (1 << (kind.width - 1)) - 1)
        return unsigned(code, kind.width)

    def _operation(self, json: Json) -> Value:
        op, left, right = json["op"], json.get("left"), json["right"]
        if op in ARITHMETIC:
            first = constant(0) if left is None and op in "+-" else self.data(_present(left, op))
            return binary(op, first, self.data(right))
        match op:
            case "~":
                value = self.data(right)
                low, high = value.low, value.high
                return Value(
                    f"(~{value.code})", None if high is None else ~high, None if low is None else ~low
                )
            case "/" | "%":
                return self._division(op, self.data(_present(left, op)), self.data(right))
            case "?":
                yes, no = self.data(_present(left, op)), self.data(right)
                code = f"({yes.code} if {self.boolean(json['cond'])} else {no.code})"
                return either(code, yes, no)
            case "two_comp_mod" | "sat_cast" | "usat_cast":
                width = self.data(right).constant
                if width is None:
                    raise UnsupportedConstruct(f"{op} to a width that is not constant")
                value = self.data(_present(left, op))
                if op == "two_comp_mod":
                    return wrap(value, width, True)
                return saturate(value, width, op == "sat_cast")
            case "b2d":
                return self._number_of(right)
            case "last_stack_index":
                stack = self.stack(right["value"])
                return Value(f"(f[{stack.next}] - 1)", -1, stack.size - 1)
            case "size_stack":
                stack = self.stack(right["value"])
                return Value(f"f[{stack.next}]", 0, stack.size)
            case "access_field":
                return self.field_of(self.header(_present(left, op)), int(right))
        raise UnsupportedConstruct(f"operator {op}")

    def _number_of(self, json: Json) -> Value:
        """A condition as 0 or 1."""
        test = self.boolean(json)
        return constant(int(test)) if test in ("0", "1") else unsigned(f"(1 if {test} else 0)", 1)

    def _division(self, op: str, a: Value, b: Value) -> Value:
        python = "//" if op == "/" else "%"
        if a.low is None or a.low < 0:
            raise UnsupportedConstruct(f"{op} of a value that may be negative")
        divisor = b.code if b.low is not None and b.low > 0 else f"nonzero({b.code})"
        high = a.high if op == "/" or b.high is None else b.high - 1
        return Value(f"({a.code} {python} {divisor})", 0, high)

    def _register(self, value: list[Any]) -> Value:
        name, size, width = self.registers[value[0]]
        index = self.data(value[1])
        code = index.code if index.within(0, size - 1) else f"checked_index({index.code}, {size})"
        return unsigned(f"{name}[{code}]", width)

    # ---- booleans

    def boolean(self, json: Json) -> str:
        """A condition, as Python source."""
        if json["type"] == "bool":
            return "1" if json["value"] else "0"
        if json["type"] != "expression":
            return f"{self.data(json).code} != 0"
        inner = json["value"]
        if "op" not in inner:
            return self.boolean(inner)
        op, left, right = inner["op"], inner.get("left"), inner["right"]
        match op:
            case "and" | "or":
                return f"({self.boolean(_present(left, op))} {op} {self.boolean(right)})"
            case "not":
                return f"(not {self.boolean(right)})"
            case "d2b":
                value = self.data(right)
                return value.code if value.within(0, 1) else f"({value.code} != 0)"
            case "b2d":
                return self.boolean(right)
            case "valid":
                return self.header(right).valid
            case "valid_union":
                return self.union(right).valid
            case "==" | "!=":
                return self._equality(op, _present(left, op), right)
            case "<" | ">" | "<=" | ">=":
                return f"({self.data(_present(left, op)).code} {op} {self.data(right).code})"
            case "?":
                yes, no = self.boolean(_present(left, op)), self.boolean(right)
                return f"({yes} if {self.boolean(inner['cond'])} else {no})"
        return f"({self.data(json).code} != 0)"

    def _equality(self, op: str, left: Json, right: Json) -> str:
        kind = self.kind(left)
        if kind == "bool":
            return f"(bool({self.boolean(left)}) {op} bool({self.boolean(right)}))"
        if kind == "data":
            return f"({self.data(left).code} {op} {self.data(right).code})"
        if kind == "header":
            equal = self._same_header(self.header(left), self.header(right))
        elif kind == "union":
            a, b = self.union(left), self.union(right)
            members = range(len(a.union.members))
            equal = "(" + " or ".join(self._same_header(a.member(i), b.member(i)) for i in members) + ")"
        else:
            raise UnsupportedConstruct(f"comparison of {kind}s")
        return equal if op == "==" else f"(not {equal})"

    def _same_header(self, a: HeaderRef, b: HeaderRef) -> str:
        """Both valid and all fields equal."""
        return f"({a.valid} and {a.slots(a.type.slots)} == {b.slots(b.type.slots)})"

    # ---- headers, unions, stacks

    def header(self, json: Json) -> HeaderRef:
        """A header expression."""
        if json["type"] == "header":
            header = self.layout.header(json["value"])
            return HeaderRef(header.type, str(header.base), tuple(f"f[{slot}]" for slot in header.rivals))
        if json["type"] == "expression":
            inner = json["value"]
            if "op" not in inner:
                return self.header(inner)
            if inner["op"] in ("dereference_header_stack", "dereference_stack"):
                stack = self.stack(inner["left"]["value"])
                if stack.type is None:
                    raise InvalidProgram(f"{stack.name} is not a stack of headers")
                return HeaderRef(stack.type, self._element(stack, self.data(inner["right"])))
            if inner["op"] == "access_union_header":
                return self.union(inner["left"]).member(int(inner["right"]))
        raise UnsupportedConstruct(f"header expression of type {json['type']}")

    def union(self, json: Json) -> UnionRef:
        """A header union expression."""
        if json["type"] == "header_union":
            union = self.layout.unions[json["value"]]
            return UnionRef(union, str(union.base))
        if json["type"] == "expression":
            inner = json["value"]
            if "op" not in inner:
                return self.union(inner)
            if inner["op"] == "dereference_union_stack":
                stack = self.stack(inner["left"]["value"])
                if stack.union is None:
                    raise InvalidProgram(f"{stack.name} is not a stack of unions")
                return UnionRef(stack.union, self._element(stack, self.data(inner["right"])))
        raise UnsupportedConstruct(f"union expression of type {json['type']}")

    def stack(self, name: str) -> Stack:
        """The header stack, or stack of unions, called `name`."""
        try:
            return self.layout.stacks[name]
        except KeyError:
            raise InvalidProgram(f"there is no header stack {name}") from None

    def _element(self, stack: Stack, index: Value) -> str:
        if index.constant is not None and 0 <= index.constant < stack.size:
            return str(stack.base + stack.stride * index.constant)
        code = index.code if index.within(0, stack.size - 1) else f"checked_index({index.code}, {stack.size})"
        return f"({stack.base} + {stack.stride} * {code})"

    def _last(self, stack: Stack) -> str:
        if self.guards is None:
            raise UnsupportedConstruct(f"{stack.name}.last outside a parser")
        self.guards.append(f"f[{stack.next}] == 0")
        return f"({stack.base - stack.stride} + {stack.stride} * f[{stack.next}])"

    def _last_field(self, stack: Stack, field_name: str) -> Value:
        if stack.type is None:
            raise InvalidProgram(f"{stack.name} is not a stack of headers")
        return self.field_of(HeaderRef(stack.type, self._last(stack)), stack.type.field(field_name).offset)

    def _last_union_field(self, stack: Stack, member: str, field_name: str) -> Value:
        if stack.union is None:
            raise InvalidProgram(f"{stack.name} is not a stack of unions")
        ref = UnionRef(stack.union, self._last(stack)).member(list(stack.union.members).index(member))
        return self.field_of(ref, ref.type.field(field_name).offset)


def _present(json: Json | None, op: str) -> Json:
    if json is None:
        raise InvalidProgram(f"operator {op} without a left operand")
    return json
