"""Actions: a list of primitives, some of which jump to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import InvalidProgram, UnsupportedConstruct
from .expressions import Expressions
from .flow import loop_heads, write_paths
from .layout import Layout
from .primitives import Primitives, Resources
from .source import Source

Json = dict[str, Any]
JUMPS = ("_jump", "_jump_if_zero")


class Actions:
    """Writes actions: as functions `action(f, a0, a1, …)`, or in place where their arguments are known."""

    def __init__(self, source: Source, layout: Layout, resources: Resources, configs: list[Json]) -> None:
        self.source = source
        self.layout = layout
        self.resources = resources
        self.configs = {config["id"]: config for config in configs}
        self.functions: dict[int, str] = {}

    def name(self, action: int) -> str:
        """Name of an action in the program."""
        return str(self.configs[action]["name"])

    def params(self, action: int) -> list[tuple[str, int]]:
        """(name, width in bits) of each parameter."""
        return [(p["name"], int(p["bitwidth"])) for p in self.configs[action]["runtime_data"]]

    def may_exit(self, action: int) -> bool:
        """True when the action contains an exit statement."""
        return any(p["op"] == "exit" for p in self.configs[action]["primitives"])

    def can_inline(self, action: int) -> bool:
        """True for actions without loops: they can be written in place."""
        graph = _graph(self.configs[action]["primitives"])
        return not graph or not loop_heads(0, graph)

    def write_function(self, action: int) -> str:
        """Write the action as a function, once; returns its name."""
        if action not in self.functions:
            name = self.functions[action] = self.source.fresh("action")
            parameters = "".join(f", a{i}" for i in range(len(self.params(action))))
            with self.source.block(f"def {name}(f{parameters}):"):
                self._write(action, None)
        return self.functions[action]

    def write_inline(self, action: int, arguments: tuple[int, ...]) -> None:
        """Write the action's statements here, with constant arguments."""
        self._write(action, arguments)

    def _write(self, action: int, arguments: tuple[int, ...] | None) -> None:
        widths = tuple(width for _, width in self.params(action))
        expressions = Expressions(self.layout, self.resources.registers, widths, arguments)
        primitives = Primitives(self.source, self.layout, expressions, self.resources)
        calls = self.configs[action]["primitives"]
        try:
            self._write_calls(calls, primitives, expressions)
        except UnsupportedConstruct as error:
            raise UnsupportedConstruct(f"{error} (in action {self.name(action)})") from None

    def _write_calls(self, calls: list[Json], primitives: Primitives, expressions: Expressions) -> None:
        if not any(call["op"] in JUMPS for call in calls):
            for call in calls:
                primitives.emit(call["op"], call["parameters"])
            return
        graph = _graph(calls)
        if loop_heads(0, graph):
            self._write_loop(calls, graph, primitives, expressions)
            return

        def write(node: int, follow: Callable[[int | None], None], join: int | None) -> None:
            call = calls[node]
            if call["op"] != "_jump_if_zero":
                if call["op"] != "_jump":
                    primitives.emit(call["op"], call["parameters"])
                return
            if len(graph[node]) == 1:
                return
            nonzero, zero = graph[node]
            condition = expressions.boolean(call["parameters"][0])
            if nonzero == join:
                condition, nonzero, zero = f"not {condition}", zero, nonzero
            with self.source.block(f"if {condition}:"):
                follow(nonzero)
            if zero != join:
                with self.source.block("else:"):
                    follow(zero)

        write_paths(0, graph, write, "an action")

    def _write_loop(
        self,
        calls: list[Json],
        graph: dict[int, list[int | None]],
        primitives: Primitives,
        expressions: Expressions,
    ) -> None:
        """An action with loops: one step of `pc` after the other."""
        self.source.add("pc = steps = 0")
        with self.source.block("while pc is not None:"):
            self.source.add("steps += 1")
            self.source.add("if steps > 1000000: raise ExecutionError('a loop in an action does not end')")
            for index, call in enumerate(calls):
                with self.source.block(f"{'el' if index else ''}if pc == {index}:"):
                    if call["op"] not in JUMPS:
                        primitives.emit(call["op"], call["parameters"])
                    if call["op"] == "_jump_if_zero" and len(graph[index]) == 2:
                        condition = expressions.boolean(call["parameters"][0])
                        self.source.add(f"pc = {graph[index][0]} if {condition} else {graph[index][1]}")
                    else:
                        self.source.add(f"pc = {graph[index][0]}")


def _graph(calls: list[Json]) -> dict[int, list[int | None]]:
    """Successors of each primitive; of _jump_if_zero: first the one for non-zero."""

    def at(index: int) -> int | None:
        return index if index < len(calls) else None

    graph: dict[int, list[int | None]] = {}
    for index, call in enumerate(calls):
        graph[index] = [at(index + 1)]
        if call["op"] in JUMPS:
            target = call["parameters"][-1]
            if target["type"] != "hexstr":
                raise InvalidProgram(f"{call['op']} to an offset that is not constant")
            offset = at(int(target["value"], 16))
            following = [offset] if call["op"] == "_jump" else [at(index + 1), offset]
            graph[index] = list(dict.fromkeys(following))
    return graph
