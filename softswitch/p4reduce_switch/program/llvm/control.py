"""Controls: a basic block for each node of the graph, and the lookup of tables."""

from __future__ import annotations

from llvmlite import ir

from p4reduce_switch.program import packet
from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir.externs import ActionProfile
from p4reduce_switch.program.ir.features import may_exit
from p4reduce_switch.program.ir.flow import order
from p4reduce_switch.program.ir.program import Action, Apply, Branch, Control, Table
from p4reduce_switch.program.llvm.codegen_context import CodegenContext
from p4reduce_switch.program.llvm.emitter import I64, POINTER, Value
from p4reduce_switch.program.llvm.lookup import Lookups
from p4reduce_switch.program.llvm.statements import Actions
from p4reduce_switch.program.memory import Call, ChoicesWord, RowLayout, TableWord, Word
from p4reduce_switch.program.state.profiles import HASH_MASK
from p4reduce_switch.program.steps import Step


class ControlWriter:
    """Emits ingress and egress."""

    def __init__(self, actions: Actions, context: CodegenContext) -> None:
        self.actions = actions
        self.x = actions.x
        self.e = actions.e
        self.packet = self.x.packet
        self.context = context
        self.lookups = Lookups(self.x, context)
        self._blocks: dict[int | None, Value] = {}

    def write(self, control: Control) -> None:
        """Emit a control; afterwards the builder is at its end."""
        self.context.trace(Step.CONTROL, control.name)
        if control.entry is None:
            self.context.trace(Step.ENDED, control.name)
            return
        nodes = order(control.entry, control.graph)[::-1]
        self._blocks = {node: self.e.block() for node in (*nodes, None)}
        self.e.continue_in(self._blocks[control.entry])
        for number in nodes:
            self.e.b.position_at_end(self._blocks[number])
            node = control.nodes[number]
            if isinstance(node, Apply):
                self._apply(node)
            elif isinstance(node, Branch):
                self._branch(node)
            else:
                self._run(node.action, self.context.state)
                self.e.b.branch(self._blocks[node.next])
        self.e.b.position_at_end(self._blocks[None])
        self.context.trace(Step.ENDED, control.name)

    def _branch(self, node: Branch) -> None:
        holds = self.x.test(node.condition)
        self.context.trace(Step.CONDITION, node, lambda: [(self.e.b.zext(holds, I64), False)])
        self.e.b.cbranch(holds, self._blocks[node.yes], self._blocks[node.no])

    def _run(self, action: Action, arguments: Value) -> None:
        """Emit an action; after an exit the control ends."""
        self.actions.write(action, arguments)
        if may_exit(action):
            after = self.e.block()
            self.e.b.cbranch(
                self.e.b.not_(self.x.n.is_zero(self.packet.number(packet.EXIT))), self._blocks[None], after
            )
            self.e.b.position_at_end(after)

    # ---- tables

    def _apply(self, node: Apply) -> None:
        table = node.table
        if not table.keys and table.default_is_const and table.default is not None:
            self._trace(table, None)
            number = table.actions.index(table.default[0])
            self._run(table.default[0], self._default_arguments(table))
            self.e.b.branch(self._blocks[node.next_on_miss[number]])
            return
        row = self.lookups.find(table) if table.keys else None
        self._trace(table, row)
        hit, action, arguments = self._result(table, row)
        none = self._blocks[node.next_without_default]
        if table.profile is not None and hit is not None:
            none = self.e.block()
        choice = self.e.b.switch(action, none)
        if table.profile is not None and hit is not None:
            self.e.b.position_at_end(none)
            without_member, without_default = node.next_without_member, node.next_without_default
            self.e.b.cbranch(hit, self._blocks[without_member], self._blocks[without_default])
        for number, chosen in enumerate(table.actions):
            block = self.e.block()
            choice.add_case(ir.Constant(I64, number), block)
            self.e.b.position_at_end(block)
            self._run(chosen, arguments)
            on_hit, on_miss = self._blocks[node.next_on_hit[number]], self._blocks[node.next_on_miss[number]]
            if hit is None or on_hit is on_miss:
                self.e.b.branch(on_miss)
            else:
                self.e.b.cbranch(hit, on_hit, on_miss)

    def _trace(self, table: Table, row: Value | None) -> None:
        """Emit the report of a lookup."""
        sizes = [64 * words for words in self.context.offsets.rows[table].key_words]
        self.context.trace(
            Step.TABLE,
            table,
            lambda: [
                *((self.x.low(key.value, size), False) for key, size in zip(table.keys, sizes, strict=True)),
                (self.e.i64(-1) if row is None else row, True),
            ],
        )

    def _default_arguments(self, table: Table) -> Value:
        return self.context.pointer(self.context.offsets.tables[table] + TableWord.DEFAULT_ARGUMENTS)

    def _result(self, table: Table, row: Value | None) -> tuple[Value | None, Value, Value]:
        """Emit a lookup; return (hit, number of the action, pointer to its arguments)."""
        action, arguments = self.e.local(I64), self.e.local(POINTER)
        chosen = (action, arguments)
        words, layout = self.context.offsets.tables[table], self.context.offsets.rows[table]

        def miss() -> None:
            self.e.store(self.context.word(words + TableWord.DEFAULT), action)
            self.e.store(self._default_arguments(table), arguments)

        def hit() -> None:
            assert row is not None
            start = self.e.word(
                self.context.pointer(words + TableWord.ROWS), self.e.b.mul(row, self.e.i64(layout.words))
            )
            if table.profile is not None:
                self._choose(table.profile, self.e.load_pointer(self.e.word(start, layout.arguments)), layout, chosen)
            else:
                self.e.store(self.e.load(I64, self.e.word(start, RowLayout.ACTION)), action)
                self.e.store(self.e.word(start, layout.arguments), arguments)
            if table.supports_timeout:
                self.e.store(self.context.word(Word.NOW_US), self.e.word(start, RowLayout.HIT))
            self._meter(table, row)
            if table.has_direct_counter:
                self.context.count(self.e.word(start, RowLayout.PACKETS))

        found = None
        if row is None:
            miss()
        else:
            found = self.e.b.icmp_signed(">=", row, self.e.i64(0))
            self.e.if_else(found, hit, miss)
        return found, self.e.load(I64, action), self.e.load(POINTER, arguments)

    def _choose(self, profile: ActionProfile, choices: Value, layout: RowLayout, chosen: tuple[Value, Value]) -> None:
        """Emit the selection for an entry with an action profile: action -1 for an empty group."""
        e, b = self.e, self.e.b
        action, arguments = chosen
        count = e.load(I64, e.word(choices, int(ChoicesWord.COUNT)))

        def call() -> None:
            index = e.i64(0)
            if profile.selector is not None:
                index = b.urem(b.and_(self.context.calculation(profile.selector), e.i64(HASH_MASK)), count)
            calls = e.load_pointer(e.word(choices, int(ChoicesWord.CALLS)))
            found = e.word(calls, b.mul(index, e.i64(layout.call_words)))
            e.store(e.load(I64, found), action)
            e.store(e.word(found, 1), arguments)

        def nothing() -> None:
            e.store(e.i64(-1), action)
            e.store(choices, arguments)

        e.if_else(self.x.n.is_zero(count), nothing, call)

    def _meter(self, table: Table, row: Value) -> None:
        if table.direct_meter is None:
            return
        cell = self.x.references.field(table.direct_meter.result)
        if cell.kind.bits < 2 + cell.kind.signed or cell.kind.wide:
            raise UnsupportedConstructError("a direct meter with a result of that width")
        tables = list(self.context.offsets.tables)
        length = self.packet.number(packet.INGRESS_LENGTH)
        color = self.context.call(Call.DIRECT_METER, tables.index(table), row, length)
        self.packet.store(cell, self.x.n.resize(color, 8 * cell.kind.bytes_, False))
