"""Parsers: each state's operations, and the select that leads to the next state.

The generated `parse(f, d)` returns the number of bytes parsed and leaves the error (or NoError) in
the PARSER_ERROR slot. In the generated code `d` is the frame, `n` its length, `o` the offset.
A state that closes a loop becomes a function of its own; all others are nested if statements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import layout as slots
from .errors import InvalidProgram, UnsupportedConstruct
from .expressions import Expressions
from .extraction import Extraction
from .flow import loop_heads, write_paths
from .layout import HeaderType, Layout
from .primitives import Primitives
from .source import Source
from .values import Value, unsigned, wrap

Json = dict[str, Any]
MAX_STATES = 10_000  # states a frame may pass in a parser that loops


@dataclass(frozen=True)
class Jump:
    """The end of a path that goes on in a state with a function of its own."""

    state: str


class ParserCompiler:
    """Writes the parser."""

    def __init__(
        self,
        source: Source,
        layout: Layout,
        expressions: Expressions,
        primitives: Primitives,
        errors: dict[str, int],
    ) -> None:
        self.source = source
        self.layout = layout
        self.expressions = expressions
        self.primitives = primitives
        self.errors = errors
        self.extraction = Extraction(source, layout, expressions, self._fail)
        self.states: dict[str, Json] = {}
        self.functions: dict[str, str] = {}

    def compile(self, config: Json, name: str) -> None:
        """Write `name(f, d) -> bytes parsed`."""
        self.states = {state["name"]: state for state in config["parse_states"]}
        entry = config["init_state"]
        if entry is None:
            with self.source.block(f"def {name}(f, d):"):
                self.source.add("return 0")
            return
        graph = {state: self._next_states(state) for state in self.states}
        heads = loop_heads(entry, graph)
        self.functions = {state: self.source.fresh("state") for state in sorted(heads | {entry})}
        for state, function in self.functions.items():
            with self.source.block(f"def {function}(f, d, o, n):"):
                self._write_from(state, graph, heads)
                self.source.add("return None, o")
        with self.source.block(f"def {name}(f, d):"):
            self.source.add("n = len(d)")
            if not heads:
                self.source.add(f"return {self.functions[entry]}(f, d, 0, n)[1]")
                return
            self.source.add(f"state, o, steps = {self.functions[entry]}, 0, 0")
            with self.source.block("while state is not None:"):
                self.source.add("state, o = state(f, d, o, n)")
                self.source.add("steps += 1")
                self.source.add(f"if steps > {MAX_STATES}: raise ExecutionError('the parser does not end')")
            self.source.add("return o")

    def _next_states(self, state: str) -> list[str | None]:
        following = [t["next_state"] for t in self.states[state]["transitions"]]
        if not any(_is_default(t) for t in self.states[state]["transitions"]):
            following.append(None)
        return list(dict.fromkeys(following))

    def _write_from(self, entry: str, graph: dict[str, list[str | None]], heads: set[str]) -> None:
        """Write everything reachable from `entry` without passing another loop head."""

        def cut(state: str | None) -> str | Jump | None:
            return Jump(state) if state in heads and state is not None else state

        successors: dict[str | Jump, list[str | Jump | None]] = {
            state: list(dict.fromkeys(cut(s) for s in following)) for state, following in graph.items()
        }
        successors |= {Jump(state): [None] for state in heads}

        def write(
            node: str | Jump, follow: Callable[[str | Jump | None], None], join: str | Jump | None
        ) -> None:
            if isinstance(node, Jump):
                self.source.add(f"return {self.functions[node.state]}, o")
                return
            for operation in self.states[node]["parser_ops"]:
                self._operation(operation)
            self._select(self.states[node], lambda s: follow(cut(s)), join)

        write_paths(entry, successors, write, "a parser")

    # ---- errors

    def _fail(self, condition: str, error: str) -> None:
        self.source.add(f"if {condition}:")
        self.source.add(f" f[{slots.PARSER_ERROR}] = {self.errors[error]}; return None, o")

    def _checked(self, compile_: Callable[[], Any]) -> Any:
        """Compile an expression; an access to the last element of an empty stack ends parsing."""
        guards: list[str] = []
        self.expressions.guards = guards
        result = compile_()
        self.expressions.guards = None
        for guard in dict.fromkeys(guards):
            self._fail(guard, "StackOutOfBounds")
        return result

    # ---- operations

    def _operation(self, operation: Json) -> None:
        parameters = operation["parameters"]
        match operation["op"]:
            case "extract":
                self.extraction.extract(parameters[0], None)
            case "extract_VL":
                self.extraction.extract(
                    parameters[0], self._checked(lambda: self.expressions.data(parameters[1]))
                )
            case "set":
                value = self._checked(lambda: self._source_value(parameters[1]))
                if isinstance(value, Value):
                    self.primitives.store(parameters[0], value)
                else:
                    self.primitives.do_assign_VL(*parameters)
            case "verify":
                self._verify(*parameters)
            case "shift":
                self._advance(
                    Value(str(int(parameters[0]) * 8), int(parameters[0]) * 8, int(parameters[0]) * 8)
                )
            case "advance":
                self._advance(self._checked(lambda: self.expressions.data(parameters[0])))
            case "primitive":
                self.primitives.emit(parameters[0]["op"], parameters[0]["parameters"])
            case other:
                raise UnsupportedConstruct(f"parser operation {other}")

    def _source_value(self, json: Json) -> Value | None:
        """The value of `set`; None when it copies a varbit field."""
        if json["type"] == "lookahead":
            return self._lookahead(*json["value"])
        if json["type"] == "field" and json["value"][1] != "$valid$":
            header_name, field_name = json["value"]
            if self.layout.header(header_name).type.field(field_name).varbit:
                return None
        return self.expressions.data(json)

    def _verify(self, condition: Json, error: Json) -> None:
        test = self._checked(lambda: self.expressions.boolean(condition))
        code = self._checked(lambda: self.expressions.data(error)).code
        self.source.add(f"if not {test}:")
        self.source.add(f" f[{slots.PARSER_ERROR}] = {code}; return None, o")

    def _advance(self, bits: Value) -> None:
        if bits.constant is None:
            self.source.add(f"b = {bits.code}")
            self._fail("b & 7", "ParserInvalidArgument")
            self._fail("o + (b >> 3) > n", "PacketTooShort")
            self.source.add("o += b >> 3")
        elif bits.constant % 8:
            self._fail("True", "ParserInvalidArgument")
        else:
            self._fail(f"o + {bits.constant // 8} > n", "PacketTooShort")
            self.source.add(f"o += {bits.constant // 8}")

    def _lookahead(self, offset: int, width: int) -> Value:
        first, last = offset // 8, (offset + width + 7) // 8
        self._fail(f"o + {last} > n", "PacketTooShort")
        code = f"d[o + {first}]" if last - first == 1 else f"from_bytes(d[o + {first}:o + {last}], 'big')"
        shift = last * 8 - offset - width
        value = unsigned(f"({code} >> {shift})" if shift else code, (last - first) * 8 - shift)
        return wrap(value, width, False)

    # ---- select

    def _select(self, state: Json, follow: Callable[[str | None], None], join: Any) -> None:
        transitions = state["transitions"]
        cases = [t for t in transitions if not _is_default(t)]
        default = next((t["next_state"] for t in transitions if _is_default(t)), None)
        if not cases:
            follow(default)
            return
        keys = [self._checked(partial(self._key, key)) for key in state["transition_key"]]
        names: list[str] = []
        for index, (value, _) in enumerate(keys):
            plain = value.code.startswith("f[")
            names.append(value.code if plain and len(cases) == 1 else f"k{index}")
            if names[-1] != value.code:
                self.source.add(f"k{index} = {value.code}")
        widths = [width for _, width in keys]
        word = "if"
        for case in cases:
            if case["type"] == "parse_vset":
                raise UnsupportedConstruct(f"parser value set {case['value']}")
            with self.source.block(f"{word} {_case_test(case, names, widths)}:"):
                follow(case["next_state"])
            word = "elif"
        if default is not None and default != join:
            with self.source.block("else:"):
                follow(default)

    def _key(self, key: Json) -> tuple[Value, int]:
        """Value and width of one element of a transition key."""
        if key["type"] == "lookahead":
            return self._lookahead(*key["value"]), int(key["value"][1])
        value = self.expressions.data(key)
        width = self._key_width(key)
        return wrap(value, width, False), width

    def _key_width(self, key: Json) -> int:
        kind: HeaderType | None
        if key["type"] == "field":
            if key["value"][1] == "$valid$":
                return 1
            kind = self.layout.header(key["value"][0]).type
        elif key["type"] == "stack_field":
            kind = self.expressions.stack(key["value"][0]).type
        elif key["type"] == "union_stack_field":
            union = self.expressions.stack(key["value"][0]).union
            kind = union.members[key["value"][1]].type if union else None
        else:
            raise UnsupportedConstruct(f"transition key of type {key['type']}")
        if kind is None:
            raise InvalidProgram(f"transition key {key['value']} is not a field")
        return kind.field(key["value"][-1]).width


def _is_default(transition: Json) -> bool:
    kind = transition.get("type", "default" if transition["value"] == "default" else "hexstr")
    return bool(kind == "default")


def _case_test(case: Json, names: list[str], widths: list[int]) -> str:
    """The condition of one case: value and mask hold each element padded to whole bytes."""
    value = int(case["value"], 16)
    mask = int(case["mask"], 16) if case.get("mask") else None
    tests = []
    for name, width in zip(reversed(names), reversed(widths), strict=True):
        padded = (width + 7) // 8 * 8
        full = (1 << width) - 1
        bits = full if mask is None else mask & full
        wanted = value & bits
        if bits == full:
            tests.append(f"{name} == {wanted:#x}")
        elif bits:
            tests.append(f"{name} & {bits:#x} == {wanted:#x}")
        value >>= padded
        mask = None if mask is None else mask >> padded
    return " and ".join(reversed(tests)) or "True"
