"""The parser: each state's operations, and the select that leads to the next state.

The generated `parse(f, d)` returns the number of bytes parsed and leaves the error (or NoError) in
the PARSER_ERROR slot. In the generated code `d` is the frame, `n` its length, `o` the offset.
States are nested if statements. One that closes a loop, that lies too deep, or that would have to be written too
often, becomes a function of its own: it returns the function of the state that follows, and the offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from p4reduce_switch.program import packet
from p4reduce_switch.program.ir.expressions import slot_of
from p4reduce_switch.program.ir.flow import expanded, joins, loop_heads, path
from p4reduce_switch.program.ir.program import Case, Parser, ParserErrors, SetCase, State
from p4reduce_switch.program.ir.statements import (
    Advance,
    Extract,
    ParserOperation,
    RequireBytes,
    RequireElement,
    Verify,
)
from p4reduce_switch.program.python.expressions import Expressions, literal
from p4reduce_switch.program.python.extraction import Extraction
from p4reduce_switch.program.python.source import WIDEST_CHAIN, Source
from p4reduce_switch.program.python.statements import Statements

MAX_STATES = 10_000  # functions of states that a frame may pass
MAX_DEPTH = 40  # levels of if statements
MAX_HEADS = 64  # loops of a parser
SPARE = 64  # states that may be written twice, besides as many as there are


@dataclass(frozen=True, slots=True)
class Hop:
    """The end of a path that goes on in a state with a function of its own."""

    state: int


Node = int | Hop
Graph = Mapping[Node, tuple[Node | None, ...]]
Follow = Callable[[int | None], None]


class ParserWriter:
    """Writes the parser."""

    def __init__(self, source: Source, expressions: Expressions, statements: Statements, errors: ParserErrors) -> None:
        self.source = source
        self.expressions = expressions
        self.statements = statements
        self.errors = errors
        self.extraction = Extraction(source, expressions, errors, self._fail)
        self._functions: dict[int, str] = {}

    def write(self, parser: Parser, name: str) -> None:
        """Write `name(f, d) -> bytes parsed`."""
        if parser.entry is None:
            with self.source.block(f"def {name}(f, d):"):
                self.source.add("return 0")
            return
        heads = _heads(parser, parser.entry)
        self._functions = {state: self.source.fresh("state") for state in sorted(heads | {parser.entry})}
        graph = _cut(parser, heads)
        for state, function in self._functions.items():
            with self.source.block(f"def {function}(f, d, o, n):"):
                self._path(state, None, graph, joins(state, graph), parser, heads)
                self.source.add("return None, o")
        with self.source.block(f"def {name}(f, d):"):
            self.source.add("n = len(d)")
            if not heads:
                self.source.add(f"return {self._functions[parser.entry]}(f, d, 0, n)[1]")
                return
            self.source.add(f"state, o, steps = {self._functions[parser.entry]}, 0, 0")
            with self.source.block("while state is not None:"):
                self.source.add("state, o = state(f, d, o, n)")
                self.source.add("steps += 1")
                self.source.add(f"if steps > {MAX_STATES}: raise ExecutionError('the parser does not end')")
            self.source.add("return o")

    def _path(
        self,
        start: Node | None,
        stop: Node | None,
        graph: Graph,
        join: Mapping[Node, Node | None],
        parser: Parser,
        heads: set[int],
    ) -> None:
        for node in path(start, stop, join):
            if isinstance(node, Hop):
                self.source.add(f"return {self._functions[node.state]}, o")
                return
            state = parser.states[node]
            for operation in state.operations:
                self._operation(operation)

            def follow(target: int | None, meeting: Node | None = join[node]) -> None:
                node = Hop(target) if target is not None and target in heads else target
                if node != meeting:
                    self._path(node, meeting, graph, join, parser, heads)

            self._select(state, follow)

    # ---- operations

    def _fail(self, condition: str, error: int) -> None:
        self.source.add(f"if {condition}:")
        self.source.add(f" f[{packet.PARSER_ERROR}] = {error}; return None, o")

    def _operation(self, operation: ParserOperation) -> None:
        match operation:
            case Extract():
                self.extraction.write(operation)
            case Advance():
                self._advance(operation)
            case Verify():
                self.source.add(f"if not {self.expressions.test(operation.condition)}:")
                error = self.expressions.data(operation.error)
                self.source.add(f" f[{packet.PARSER_ERROR}] = {error}; return None, o")
            case RequireBytes():
                self._fail(f"o + {operation.count} > n", self.errors.packet_too_short)
            case RequireElement():
                self._fail(f"f[{operation.stack.next}] == 0", self.errors.stack_out_of_bounds)
            case _:
                self.statements.write(operation)

    def _advance(self, node: Advance) -> None:
        bits = node.bits.interval.constant
        if bits is None:
            self.source.add(f"b = {self.expressions.data(node.bits)}")
            self._fail("b & 7 or b < 0" if node.bits.signed else "b & 7", self.errors.parser_invalid_argument)
            self._fail("o + (b >> 3) > n", self.errors.packet_too_short)
            self.source.add("o += b >> 3")
        elif bits % 8 or bits < 0:
            self._fail("True", self.errors.parser_invalid_argument)
        else:
            self._fail(f"o + {bits // 8} > n", self.errors.packet_too_short)
            self.source.add(f"o += {bits // 8}")

    # ---- select

    def _select(self, state: State, follow: Follow) -> None:
        if not state.cases:
            follow(state.default)
            return
        names = []
        for index, (value, _) in enumerate(state.keys):
            code = self.expressions.data(value)
            if slot_of(value) is not None and len(state.cases) == 1:
                names.append(code)
            else:
                names.append(f"k{index}")
                self.source.add(f"k{index} = {code}")
        self._cases(
            state, list(state.cases), [(n, bits) for n, (_, bits) in zip(names, state.keys, strict=True)], follow
        )

    def _cases(self, state: State, cases: list[Case | SetCase], keys: list[tuple[str, int]], follow: Follow) -> None:
        """The cases in order; more than a chain takes are found by number first."""
        if len(cases) > WIDEST_CHAIN:
            self._many_cases(state, cases, keys, follow)
            return
        word = "if"
        for case in cases:
            with self.source.block(f"{word} {self._test(case, keys)}:"):
                follow(case.next)
            word = "elif"
        with self.source.otherwise():
            follow(state.default)

    def _many_cases(
        self, state: State, cases: list[Case | SetCase], keys: list[tuple[str, int]], follow: Follow
    ) -> None:
        numbers: dict[int | None, int] = {}
        for target in [*(case.next for case in cases), state.default]:
            numbers.setdefault(target, len(numbers))
        targets = list(numbers)
        chooser, names = self.source.fresh("choose"), [f"k{index}" for index in range(len(keys))]

        def write() -> None:
            with self.source.block(f"def {chooser}({', '.join(names)}):"):
                own = [(name, bits) for name, (_, bits) in zip(names, keys, strict=True)]
                for case in cases:
                    self.source.add(f"if {self._test(case, own)}: return {numbers[case.next]}")
                self.source.add(f"return {numbers[state.default]}")

        self.source.later(write)
        choice = self.source.fresh("x")
        self.source.add(f"{choice} = {chooser}({', '.join(name for name, _ in keys)})")
        self.source.choose_among(choice, [*range(len(targets))], lambda number: follow(targets[number]))

    def _test(self, case: Case | SetCase, keys: list[tuple[str, int]]) -> str:
        """The condition of one case."""
        if isinstance(case, SetCase):
            holds = self.statements.names.value_sets[case.value_set]
            return f"{holds}({', '.join(name for name, _ in keys)})"
        return _compared(case, keys)


def _compared(case: Case, keys: list[tuple[str, int]]) -> str:
    tests = []
    for (name, bits), (mask, value) in zip(keys, case.tests, strict=True):
        if mask == (1 << bits) - 1:
            tests.append(f"{name} == {literal(value)}")
        elif mask:
            tests.append(f"{name} & {literal(mask)} == {literal(value)}")
    return " and ".join(tests) or "True"


def _cut(parser: Parser, heads: set[int]) -> Graph:
    """The graph with hops in place of the ways into heads."""
    graph: dict[Node, tuple[Node | None, ...]] = {
        state: tuple(Hop(s) if s is not None and s in heads else s for s in following)
        for state, following in parser.graph.items()
    }
    return graph | {Hop(state): (None,) for state in heads}


def _heads(parser: Parser, entry: int) -> set[int]:
    """States that become functions of their own: where loops close, or all when the rest does not nest."""
    heads = loop_heads(entry, parser.graph)
    if len(heads) > MAX_HEADS:
        return set(parser.graph)
    graph, left = _cut(parser, heads), 2 * len(parser.states) + SPARE
    for start in heads | {entry}:
        size = expanded(start, graph, joins(start, graph), left)
        if size is None or size[1] > MAX_DEPTH:
            return set(parser.graph)
        left -= size[0]
    return heads
