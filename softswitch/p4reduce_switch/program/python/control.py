"""Controls: the graph of tables and conditions of a pipeline, as nested if statements.

A node that lies too deep becomes a function of its own, and so does each that would be written twice, where all of
them written out would grow too large.
"""

from __future__ import annotations

from collections.abc import Mapping

from p4reduce_switch.program import packet
from p4reduce_switch.program.errors import UnsupportedConstruct
from p4reduce_switch.program.ir.features import may_exit
from p4reduce_switch.program.ir.flow import expanded, joins, path, visits
from p4reduce_switch.program.ir.places import FieldRef
from p4reduce_switch.program.ir.program import Action, Apply, Branch, Call, Control, Table
from p4reduce_switch.program.python.actions import Actions
from p4reduce_switch.program.python.expressions import Expressions, slot
from p4reduce_switch.program.python.source import Source
from p4reduce_switch.program.state.tables import Table as TableState

MAX_DEPTH = 40  # deeper nesting continues in a function of its own (Python allows 100 levels)
SPARE = 64  # nodes that may be written twice, besides as many as there are
MOST_TIMES = 16  # how often a node may be named on average


class ControlWriter:
    """Writes one pipeline (ingress or egress); `tables` are those that the control plane changes."""

    def __init__(
        self, source: Source, expressions: Expressions, actions: Actions, tables: Mapping[Table, TableState]
    ) -> None:
        self.source = source
        self.expressions = expressions
        self.actions = actions
        self.tables = tables
        self._control = Control("", None, ())
        self._join: Mapping[int, int | None] = {}
        self._shared: set[int] = set()
        self._functions: dict[int, str] = {}

    def write(self, control: Control, name: str) -> None:
        """Write `name(f)`."""
        self._control, self._functions = control, {}
        if control.entry is not None:
            self._join = joins(control.entry, control.graph)
            self._shared = self._written_apart(control.entry)
        with self.source.block(f"def {name}(f):"):
            self._path(control.entry, None)
        self.source.flush()

    def _written_apart(self, entry: int) -> set[int]:
        """Nodes with a function of their own because several branches lead there; none when all is small anyway."""
        graph, size = self._control.graph, len(self._control.nodes)
        if expanded(entry, graph, self._join, 2 * size + SPARE) is not None:
            return set()
        counted = visits([entry], graph, self._join, MOST_TIMES * size)
        if counted is None:
            raise UnsupportedConstruct(f"control {self._control.name} with too many ways through it")
        return {node for node, count in counted.items() if count > 1}

    def _path(self, start: int | None, stop: int | None) -> None:
        for node in path(start, stop, self._join):
            if node in self._shared or self.source.depth > MAX_DEPTH:
                self._call_node(node)
            else:
                self._node(node)

    def _call_node(self, node: int) -> None:
        if node not in self._functions:
            name = self._functions[node] = self.source.fresh("nested")
            self.source.later(lambda: self._function(name, node))
        self.source.add(f"{self._functions[node]}(f)")
        self._return_on_exit(True)

    def _function(self, name: str, node: int) -> None:
        with self.source.block(f"def {name}(f):"):
            self._node(node)

    def _node(self, number: int) -> None:
        node, join = self._control.nodes[number], self._join[number]
        if isinstance(node, Apply):
            self._apply(node, join)
        elif isinstance(node, Branch):
            self._branch(node, join)
        else:
            self._call(node)

    def _return_on_exit(self, exits: bool) -> None:
        if exits:
            self.source.add(f"if f[{packet.EXIT}]: return")

    def _branch(self, node: Branch, join: int | None) -> None:
        yes, no = node.yes, node.no
        if yes == no:
            return
        test = self.expressions.test(node.condition)
        if yes == join:
            test, yes, no = f"not {test}", no, yes
        with self.source.block(f"if {test}:"):
            self._path(yes, join)
        if no != join:
            with self.source.block("else:"):
                self._path(no, join)

    def _call(self, node: Call) -> None:
        self.actions.write_inline(node.action, ())
        self._return_on_exit(may_exit(node.action))

    # ---- tables

    def _apply(self, node: Apply, join: int | None) -> None:
        table = node.table
        if is_statement(table, self.actions):
            assert table.default is not None
            action, arguments = table.default
            self.actions.write_inline(action, arguments)
            self._return_on_exit(may_exit(action))
            self._path(node.next_on_miss[table.actions.index(action)], join)
            return
        self._lookup(table)
        self._return_on_exit(any(may_exit(action) for action in table.actions))
        targets = node.successors
        if len(targets) == 1:
            self._path(targets[0], join)
            return
        numbers = [number for number, target in enumerate(targets) if target != join]
        choice = "r[2]"
        if len(targets) > 2:
            choice = "x"
            self.source.add("x = r[2]")
        self.source.choose_among(choice, numbers, lambda number: self._path(targets[number], join))

    def _lookup(self, table: Table) -> None:
        """`r` becomes the lookup's result, and its action runs."""
        state = self.tables[table]
        get, miss = self.source.bind("get", state.get), self.source.bind("miss", state.miss)
        keys = [self.expressions.data(key.value) for key in table.keys]
        if not keys:
            self.source.add(f"r = {miss}(())")
        elif len(keys) == 1:
            self.source.add(f"r = {get}({keys[0]}) or {miss}({keys[0]})")
        else:
            self.source.add(f"k = ({', '.join(keys)})")
            self.source.add(f"r = {get}(k) or {miss}(k)")
        if table.profile is not None:
            choose, selector = self.source.bind("choose", state.choose), table.profile.selector
            hashed = "0" if selector is None else f"{self.expressions.names.calculations[selector]}(f)"
            self.source.add(f"if r[0] is None: r = {choose}(r, {hashed})")
        if table.supports_timeout:
            now = self.source.bind("now", state.now)
            self.source.add(f"if r[3]: r[3].hit_us = {now}()")
        if table.direct_meter is not None:
            color = self.source.bind("meter_color", state.meter_color)
            result: FieldRef = table.direct_meter.result
            target = slot(self.expressions.start(result.header), result.offset)
            self.source.add(f"if r[3]: {target} = {color}(r[3], f[{packet.INGRESS_LENGTH}])")
        if table.has_direct_counter:
            with self.source.block("if r[3]:"):
                self.source.add(f"c = r[3]; c.packets += 1; c.bytes += f[{packet.INGRESS_LENGTH}]")
        self.source.add("r[0](f, *r[1])" if any(action.parameters for action in table.actions) else "r[0](f)")


def is_statement(table: Table, actions: Actions) -> bool:
    """True for p4c's stand-ins for plain statements: no key, and one action that never changes."""
    return (
        not table.keys
        and table.default_is_const
        and table.default is not None
        and table.direct_meter is None
        and actions.can_inline(table.default[0])
    )


def functions_of(table: Table, actions: Actions) -> dict[Action, str]:
    """The functions of a table's actions; none for a table that is written in place."""
    return {} if is_statement(table, actions) else {action: actions.function(action) for action in table.actions}
