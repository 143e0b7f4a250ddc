"""Actions: as functions `action(f, a0, a1, …)`, or in place where their arguments are known.

An action with jumps becomes nested if statements. Where that is not possible (a loop) or would nest too deep or grow
too large, each of its straight pieces becomes a function that returns which piece is next.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from p4reduce_switch.program.ir.flow import expanded, joins, jumps, loop_heads, path
from p4reduce_switch.program.ir.program import Action
from p4reduce_switch.program.ir.statements import Instruction, Jump, JumpUnless
from p4reduce_switch.program.python.expressions import Expressions, literal
from p4reduce_switch.program.python.source import Source
from p4reduce_switch.program.python.statements import Statements, StateNames

MAX_DEPTH = 20
"""Levels of if statements in an action; a control adds its own."""
MAX_STEPS = 1_000_000
"""Pieces that an action with loops may run."""


class Shape(Enum):
    """How an action is written."""

    STRAIGHT = "straight"
    NESTED = "nested"
    PIECES = "pieces"


class Actions:
    """Writes the actions of a program."""

    def __init__(self, source: Source, names: StateNames) -> None:
        self.source = source
        self.names = names
        self._functions: dict[Action, str] = {}
        self._shapes: dict[Action, Shape] = {}

    def can_inline(self, action: Action) -> bool:
        """True for actions that can be written in place."""
        return self._shape(action) is not Shape.PIECES

    def function(self, action: Action) -> str:
        """The name of the action's function, which is written once."""
        if action not in self._functions:
            name = self._functions[action] = self.source.fresh("action")
            self.source.later(lambda: self._write_function(name, action))
        return self._functions[action]

    def write_inline(self, action: Action, arguments: tuple[int, ...]) -> None:
        """Run the action here, with constant arguments."""
        if not self.can_inline(action):
            self.source.add(f"{self.function(action)}({', '.join(['f', *map(literal, arguments)])})")
            return
        for index, argument in enumerate(arguments):
            self.source.add(f"a{index} = {literal(argument)}")
        self._write_code(action)

    def _shape(self, action: Action) -> Shape:
        if action not in self._shapes:
            self._shapes[action] = _shape_of(action.code)
        return self._shapes[action]

    def _writers(self, action: Action) -> tuple[Expressions, Statements]:
        expressions = Expressions(self.source, self.names, len(action.parameters))
        return expressions, Statements(self.source, self.names, expressions)

    def _write_function(self, name: str, action: Action) -> None:
        if self._shape(action) is Shape.PIECES:
            self._write_pieces(name, action)
            return
        expressions, _ = self._writers(action)
        with self.source.block(f"def {name}({expressions.scope}):"):
            self._write_code(action)

    def _write_code(self, action: Action) -> None:
        code = action.code
        expressions, statements = self._writers(action)
        if self._shape(action) is Shape.STRAIGHT:
            for instruction in code:
                assert not isinstance(instruction, (Jump, JumpUnless))
                statements.write(instruction)
            return
        graph = jumps(code)
        join = joins(0, graph)

        def write(start: int | None, stop: int | None) -> None:
            for node in path(start, stop, join):
                instruction = code[node]
                if isinstance(instruction, JumpUnless):
                    branch(expressions.test(instruction.condition), graph[node], join[node])
                elif not isinstance(instruction, Jump):
                    statements.write(instruction)

        def branch(test: str, targets: Sequence[int | None], meeting: int | None) -> None:
            if len(targets) == 1:
                return
            yes, no = targets
            if yes == meeting:
                test, yes, no = f"not {test}", no, yes
            with self.source.block(f"if {test}:"):
                write(yes, meeting)
            if no != meeting:
                with self.source.block("else:"):
                    write(no, meeting)

        write(0, None)

    def _write_pieces(self, name: str, action: Action) -> None:
        code, graph = action.code, jumps(action.code)
        expressions, statements = self._writers(action)
        targets = {target for node in graph.values() if len(node) > 1 for target in node}
        targets |= {graph[i][0] for i, instruction in enumerate(code) if isinstance(instruction, Jump)}
        starts = sorted({0, *(target for target in targets if target is not None)})
        numbers = {start: number for number, start in enumerate(starts)}

        def number(target: int | None) -> str:
            return "None" if target is None else str(numbers[target])

        pieces = []
        for start, end in zip(starts, [*starts[1:], len(code)], strict=True):
            pieces.append(self.source.fresh("piece"))
            with self.source.block(f"def {pieces[-1]}({expressions.scope}):"):
                for node in range(start, end):
                    instruction = code[node]
                    if not isinstance(instruction, (Jump, JumpUnless)):
                        statements.write(instruction)
                        continue
                    following = [number(target) for target in graph[node]]
                    if isinstance(instruction, JumpUnless) and len(following) > 1:
                        test = expressions.test(instruction.condition)
                        self.source.add(f"return {following[0]} if {test} else {following[1]}")
                    else:
                        self.source.add(f"return {following[0]}")
                if not isinstance(code[end - 1], (Jump, JumpUnless)):
                    self.source.add(f"return {number(graph[end - 1][0])}")
        table = self.source.fresh("pieces")
        self.source.add(f"{table} = ({', '.join(pieces)},)")
        with self.source.block(f"def {name}({expressions.scope}):"):
            self.source.add("pc = steps = 0")
            with self.source.block("while pc is not None:"):
                self.source.add(f"pc = {table}[pc]({expressions.scope})")
                self.source.add("steps += 1")
                self.source.add(f"if steps > {MAX_STEPS}: raise ExecutionError('a loop in an action does not end')")


def _shape_of(code: Sequence[Instruction]) -> Shape:
    if not any(isinstance(instruction, (Jump, JumpUnless)) for instruction in code):
        return Shape.STRAIGHT
    graph = jumps(code)
    if loop_heads(0, graph):
        return Shape.PIECES
    size = expanded(0, graph, joins(0, graph), 2 * len(code))
    return Shape.NESTED if size is not None and size[1] <= MAX_DEPTH else Shape.PIECES
