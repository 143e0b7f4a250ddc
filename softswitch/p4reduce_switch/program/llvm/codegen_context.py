"""Access of emitted code to the program's state, callbacks to Python, and failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from p4reduce_switch.program import packet
from p4reduce_switch.program.ir.externs import Calculation, Counter, Register
from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.ir.sharing import can_share
from p4reduce_switch.program.llvm.emitter import I32, I64, Emitter, Value
from p4reduce_switch.program.llvm.host_abi import Failure, HostAbi, Point, WordFormat
from p4reduce_switch.program.llvm.numbers import Number, Numbers
from p4reduce_switch.program.llvm.packet_state import Cell, PacketState
from p4reduce_switch.program.memory import LINE, LOCK_SPAN, LOCKS, Call, StateOffsets, Word, register_kind
from p4reduce_switch.program.steps import Step


class CodegenContext:
    """The context of one emitted function: the program's state, and `failed`, the block for frames that fail."""

    def __init__(
        self,
        emitter: Emitter,
        numbers: Numbers,
        packet: PacketState,
        program: Program,
        offsets: StateOffsets,
        state: Value,
        failed: Value,
        host_abi: HostAbi,
    ) -> None:
        self.e = emitter
        self.n = numbers
        self.packet = packet
        self.program = program
        self.offsets = offsets
        self.state = state
        self.failed = failed
        self.host_abi = host_abi
        self.meters = {meter: number for number, meter in enumerate(program.meters)}
        self.calculate: Callable[[Calculation], Value] = _no_calculations
        self.held = emitter.local(I64) if can_share(program) else None
        """The address of the lock that this thread holds, or 0; None in code for one thread."""

    def lock(self, index: Value) -> None:
        """Before an access to a register: lock the cells of this index, once for each frame."""
        e = self.e
        if self.held is None:
            return
        with e.if_then(self.n.is_zero(e.load(I64, self.held))):
            number = e.b.and_(e.b.udiv(index, e.i64(LOCK_SPAN)), e.i64(LOCKS - 1))
            lock = e.at(self.pointer(Word.LOCKS), e.b.mul(number, e.i64(LINE)))
            e.store(e.b.ptrtoint(lock, I64), self.held)
            attempt, wait, after = e.block(), e.block(), e.block()
            e.continue_in(attempt)
            before = e.b.atomic_rmw("xchg", lock, e.i64(1), "acquire")
            e.b.cbranch(self.n.is_zero(before), after, wait)
            e.b.position_at_end(wait)
            e.b.call(e.module.intrinsic("sched_yield", I32, []), [])
            e.b.branch(attempt)
            e.b.position_at_end(after)

    def unlock(self) -> None:
        """After the last access of a frame: release the lock, if it is held."""
        e = self.e
        if self.held is None:
            return
        held = e.load(I64, self.held)
        with e.if_then(e.b.not_(self.n.is_zero(held))):
            e.b.store_atomic(e.i64(0), e.b.inttoptr(held, ir.PointerType(I64)), "release", 8)
            e.store(e.i64(0), self.held)

    def word(self, number: int) -> Value:
        """Load a word of the state."""
        return self.e.load(I64, self.e.word(self.state, int(number)))

    def pointer(self, number: int) -> Value:
        """Load a word of the state that is an address."""
        return self.e.load_pointer(self.e.word(self.state, int(number)))

    def set_word(self, number: int, value: Value) -> None:
        """Store a word of the state."""
        self.e.store(value, self.e.word(self.state, int(number)))

    # ---- arrays

    def register_cell(self, register: Register, index: Value) -> Cell:
        """Return a cell; the index is in range."""
        kind = register_kind(register)
        start = self.pointer(self.offsets.registers[register])
        _, row = self.offsets.cells[register]
        return Cell(self.e.at(start, self.e.b.mul(index, self.e.i64(row))), kind)

    def counter(self, counter: Counter, index: Value) -> Value:
        """Return a pointer to a counter: packets, then bytes; the index is in range."""
        return self.e.at(self.pointer(self.offsets.counters[counter]), self.e.b.shl(index, self.e.i64(4)))

    def count(self, where: Value) -> None:
        """Count one packet."""
        length = self.packet.number(packet.INGRESS_LENGTH)
        for offset, amount in ((0, self.e.i64(1)), (8, length)):
            place = self.e.at(where, offset)
            self.e.store(self.e.b.add(self.e.load(I64, place), amount), place)

    # ---- Python

    def call(self, kind: Call, number: int, a: Value, b: Value) -> Value:
        """Call Python."""
        self.e.count()
        kind_of_pointer = ir.PointerType(ir.FunctionType(I64, [I64, I64, I64, I64]))
        function = self.e.load(kind_of_pointer, self.e.word(self.state, int(Word.CALLBACK)))
        return self.e.b.call(function, [self.e.i64(kind), self.e.i64(number), a, b])

    def store_values(self, values: Sequence[tuple[Number, bool]], position: int = 0) -> None:
        """Store values for Python (VALUES), from this word on."""
        start = self.pointer(Word.VALUES)
        for value, _ in values:
            for limb in self.n.limbs(value):
                self.e.store(limb, self.e.word(start, position))
                position += 1

    def trace(
        self, what: Step, subject: object = None, values: Callable[[], Sequence[tuple[Number, bool]]] = tuple
    ) -> None:
        """Emit, in traced code, a report of a step; `values` emits its values, each with whether it is signed."""
        points = self.host_abi.points
        if points is None:
            return
        found = values()
        self.store_values(found, self.host_abi.log_words)
        formats = tuple(WordFormat(self.n.size(value) // 64, signed) for value, signed in found)
        points.append(Point(what, subject, formats))
        self.call(Call.TRACE, len(points) - 1, self.e.i64(0), self.e.i64(0))

    # ---- hashes and failures

    def calculation(self, calculation: Calculation) -> Value:
        """Emit a calculation; return its result in 64 bits."""
        return self.calculate(calculation)

    def fail(self, failure: Failure, value: Number, signed: bool, limit: int) -> None:
        """Emit the failure of the frame; `value` and `limit` are for the error message."""
        low, high = self.n.limbs(self.n.resize(value, 128, signed))
        self.set_word(Word.FAILURE, self.e.i64(failure))
        self.set_word(Word.FAILURE_LOW, low)
        self.set_word(Word.FAILURE_HIGH, high)
        self.set_word(Word.FAILURE_LIMIT, self.e.i64(limit))
        self.e.jump(self.failed)


def _no_calculations(_calculation: Calculation) -> Value:
    raise AssertionError("calculations are emitted by checksums.py")
