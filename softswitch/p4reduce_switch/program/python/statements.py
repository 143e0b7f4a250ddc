"""Statements of the IR as Python statements, one small method each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from p4reduce_switch.program import packet
from p4reduce_switch.program.ir.data import Data
from p4reduce_switch.program.ir.expressions import slot_of
from p4reduce_switch.program.ir.externs import Counter, Meter
from p4reduce_switch.program.ir.places import HeaderRef, union_of
from p4reduce_switch.program.ir.program import ValueSet
from p4reduce_switch.program.ir.statements import (
    AddHeader,
    Assert,
    Assignment,
    Clone,
    CopyHeader,
    CopyStack,
    CopyUnion,
    CopyVarbit,
    Count,
    Exit,
    Log,
    MeterExecute,
    PopFront,
    PushFront,
    RandomNumber,
    Recirculate,
    RegisterRead,
    RegisterWrite,
    RemoveHeader,
    Resubmit,
    SendDigest,
    Statement,
    Store,
    Truncate,
)
from p4reduce_switch.program.python.expressions import Expressions, Names, Start, rivals, slot, slots
from p4reduce_switch.program.python.source import Source


class StateNames(Names):
    """Names, in the generated module, of all that statements use."""

    def __init__(self) -> None:
        super().__init__()
        self.counters: dict[Counter, tuple[str, str]] = {}
        """The lists of packets and of bytes."""
        self.meters: dict[Meter, str] = {}
        self.value_sets: dict[ValueSet, str] = {}
        """The methods that tell whether a value set holds some keys."""


class Statements:
    """Writes statements to `source`."""

    def __init__(self, source: Source, names: StateNames, expressions: Expressions) -> None:
        self.source = source
        self.names = names
        self.expressions = expressions

    def write(self, statement: Statement) -> None:
        """One statement."""
        _WRITERS[type(statement)](self, statement)

    # ---- assignments

    def _store(self, node: Store) -> None:
        start = self.expressions.start(node.target.header)
        self.source.add(f"{slot(start, node.target.offset)} = {self.expressions.data(node.value)}")

    def _register_write(self, node: RegisterWrite) -> None:
        index, condition = self._bounded(node.index, node.register.size)
        value = self.expressions.data(node.value)
        self._guarded(condition, f"{self.names.registers[node.register]}[{index}] = {value}")

    def _into(self, target: Assignment, result: str) -> None:
        """Write an assignment whose Result is `result`."""
        self.expressions.result = result
        self.write(target)

    def _copy_varbit(self, node: CopyVarbit) -> None:
        fields = (node.target, node.source)
        starts = [self.expressions.start(field.header) for field in fields]
        to, source = (slot(start, field.offset) for start, field in zip(starts, fields, strict=True))
        lengths = [slot(s, f.header.type.length_offset) for s, f in zip(starts, fields, strict=True)]
        self.source.add(f"{to} = {source}; {lengths[0]} = {lengths[1]}")

    def _start(self, ref: HeaderRef) -> Start:
        """Where a header starts, computed once."""
        return self._kept(self.expressions.start(ref))

    def _kept(self, start: Start) -> Start:
        if isinstance(start, int):
            return start
        name = self.source.fresh("h")
        self.source.add(f"{name} = {start}")
        return name

    def _copy_header(self, node: CopyHeader) -> None:
        to, source, kind = self._start(node.target), self._start(node.source), node.target.type
        with self.source.block(f"if {slot(source, kind.valid_offset)}:"):
            self.source.add(f"{slots(to, kind.slots)} = {slots(source, kind.slots)}")
            self._invalidate(rivals(node.target, to))
        with self.source.block("else:"):
            self.source.add(f"{slot(to, kind.valid_offset)} = 0")

    def _invalidate(self, validities: list[str]) -> None:
        if validities:
            self.source.add(" = ".join(validities) + " = 0")

    def _copy_union(self, node: CopyUnion) -> None:
        to, source = (self._kept(self.expressions.union_start(ref)) for ref in (node.target, node.source))
        size = union_of(node.target).slots
        self.source.add(f"{slots(to, size)} = {slots(source, size)}")

    def _copy_stack(self, node: CopyStack) -> None:
        to, source, size = node.target, node.source, node.target.size * node.target.stride
        self.source.add(f"f[{to.next}] = f[{source.next}]")
        self.source.add(f"{slots(to.base, size)} = {slots(source.base, size)}")

    # ---- validity

    def _add_header(self, node: AddHeader) -> None:
        start, kind = self._start(node.header), node.header.type
        with self.source.block(f"if not {slot(start, kind.valid_offset)}:"):
            fresh = (0,) * kind.valid_offset + (1,)
            self.source.add(f"{slots(start, kind.slots)} = {fresh}")
            self._invalidate(rivals(node.header, start))
            self.source.add(f"f[{packet.LENGTH}] += {kind.fixed_bits // 8}")

    def _remove_header(self, node: RemoveHeader) -> None:
        start, kind = self._start(node.header), node.header.type
        length = str(kind.fixed_bits // 8)
        if kind.varbit:
            length += f" + ({slot(start, kind.length_offset)} >> 3)"
        with self.source.block(f"if {slot(start, kind.valid_offset)}:"):
            self.source.add(f"f[{packet.LENGTH}] -= {length}")
            self.source.add(f"{slot(start, kind.valid_offset)} = 0")

    def _push(self, node: PushFront) -> None:
        stack, shift = node.stack, node.count * node.stack.stride
        end = stack.base + stack.size * stack.stride
        self.source.add(f"f[{stack.next}] = min({stack.size}, f[{stack.next}] + {node.count})")
        self.source.add(f"f[{stack.base}:{end}] = [0] * {shift} + f[{stack.base}:{end - shift}]")

    def _pop(self, node: PopFront) -> None:
        stack, shift = node.stack, node.count * node.stack.stride
        end = stack.base + stack.size * stack.stride
        self.source.add(f"f[{stack.next}] = max(0, f[{stack.next}] - {node.count})")
        self.source.add(f"f[{stack.base}:{end}] = f[{stack.base + shift}:{end}] + [0] * {shift}")

    # ---- what happens to the packet

    def _set(self, number: int, value: Data, more: str = "") -> None:
        self.source.add(f"f[{number}] = {self.expressions.data(value)}{more}")

    def _exit(self, _node: Exit) -> None:
        self.source.add(f"f[{packet.EXIT}] = 1")

    def _clone(self, node: Clone) -> None:
        self._set(packet.CLONE, node.session, " + 1")
        self._set(packet.CLONE_FIELDS, node.field_list)

    def _resubmit(self, node: Resubmit) -> None:
        self._set(packet.RESUBMIT, node.field_list)

    def _recirculate(self, node: Recirculate) -> None:
        self._set(packet.RECIRCULATE, node.field_list)

    def _digest(self, node: SendDigest) -> None:
        self._set(packet.DIGEST, node.digest)

    def _truncate(self, node: Truncate) -> None:
        limit = f"f[{packet.TRUNCATE}]"
        self.source.add(f"{limit} = min({limit}, {self.expressions.data(node.length)})")

    # ---- state

    def _bounded(self, index: Data, size: int) -> tuple[str, str | None]:
        """(index, condition under which it exists)."""
        code = self.expressions.data(index)
        if index.interval.within(0, size - 1):
            return code, None
        if slot_of(index) is None:
            name = self.source.fresh("i")
            self.source.add(f"{name} = {code}")
            code = name
        return code, f"if {'0 <= ' if index.signed else ''}{code} < {size}:"

    def _guarded(self, condition: str | None, *lines: str) -> None:
        if condition is None:
            for line in lines:
                self.source.add(line)
        else:
            with self.source.block(condition):
                for line in lines:
                    self.source.add(line)

    def _count(self, node: Count) -> None:
        packets, bytes_ = self.names.counters[node.counter]
        code, condition = self._bounded(node.index, node.counter.size)
        self._guarded(condition, f"{packets}[{code}] += 1", f"{bytes_}[{code}] += f[{packet.INGRESS_LENGTH}]")

    def _register_read(self, node: RegisterRead) -> None:
        code, condition = self._bounded(node.index, node.register.size)
        cell = f"{self.names.registers[node.register]}[{code}]"
        if condition is None:
            self._into(node.into, cell)
        else:
            with self.source.block(condition):
                self._into(node.into, cell)

    def _execute_meter(self, node: MeterExecute) -> None:
        code, condition = self._bounded(node.index, node.meter.size)
        with self.source.block(condition or "if True:"):
            self._into(node.into, f"{self.names.meters[node.meter]}.execute({code}, f[{packet.INGRESS_LENGTH}])")

    def _random(self, node: RandomNumber) -> None:
        low, high = self.source.fresh("lo"), self.source.fresh("hi")
        self.source.add(f"{low} = {self.expressions.data(node.low)}; {high} = {self.expressions.data(node.high)}")
        with self.source.block(f"if {low} <= {high}:"):
            self._into(node.into, f"random.randint({low}, {high})")

    # ---- checks and messages

    def _assert(self, node: Assert) -> None:
        with self.source.block(f"if not {self.expressions.test(node.condition)}:"):
            self.source.add("raise ExecutionError('an assert or assume of the program failed')")

    def _log(self, node: Log) -> None:
        items = "".join(f"{self.expressions.data(item)}, " for item in node.values)
        self.source.add(f"log({self.source.bind('text', node.text)}, ({items}))")


_WRITERS: dict[type, Callable[[Statements, Any], None]] = {
    Store: Statements._store,
    RegisterWrite: Statements._register_write,
    RegisterRead: Statements._register_read,
    MeterExecute: Statements._execute_meter,
    RandomNumber: Statements._random,
    Count: Statements._count,
    CopyVarbit: Statements._copy_varbit,
    CopyHeader: Statements._copy_header,
    CopyUnion: Statements._copy_union,
    CopyStack: Statements._copy_stack,
    AddHeader: Statements._add_header,
    RemoveHeader: Statements._remove_header,
    PushFront: Statements._push,
    PopFront: Statements._pop,
    Exit: Statements._exit,
    Clone: Statements._clone,
    Resubmit: Statements._resubmit,
    Recirculate: Statements._recirculate,
    SendDigest: Statements._digest,
    Truncate: Statements._truncate,
    Assert: Statements._assert,
    Log: Statements._log,
}
