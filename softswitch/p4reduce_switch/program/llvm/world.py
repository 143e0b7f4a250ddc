"""What surrounds a packet in the code that is written: the program's state, calls of Python, and failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from p4reduce_switch.program import packet
from p4reduce_switch.program.ir.externs import Calculation, Counter, Register
from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.llvm.emitter import I64, Emitter, Value
from p4reduce_switch.program.llvm.failures import Failure
from p4reduce_switch.program.llvm.handover import Handover
from p4reduce_switch.program.llvm.numbers import Number, Numbers
from p4reduce_switch.program.llvm.packet_state import Cell, PacketState
from p4reduce_switch.program.memory import Call, StateMap, Word, register_kind


class World:
    """The state of the program, seen from one function; `failed` is the block where a frame that fails ends."""

    def __init__(
        self,
        emitter: Emitter,
        numbers: Numbers,
        packet: PacketState,
        program: Program,
        map_: StateMap,
        state: Value,
        failed: Value,
        handover: Handover,
    ) -> None:
        self.e = emitter
        self.n = numbers
        self.packet = packet
        self.program = program
        self.map = map_
        self.state = state
        self.failed = failed
        self.handover = handover
        self.meters = {meter: number for number, meter in enumerate(program.meters)}
        self.calculate: Callable[[Calculation], Value] = _nothing_calculated

    def word(self, number: int) -> Value:
        """A word of the state."""
        return self.e.load(I64, self.e.word(self.state, int(number)))

    def pointer(self, number: int) -> Value:
        """A word of the state that is an address."""
        return self.e.load_pointer(self.e.word(self.state, int(number)))

    def set_word(self, number: int, value: Value) -> None:
        """Change a word of the state."""
        self.e.store(value, self.e.word(self.state, int(number)))

    # ---- arrays

    def register_cell(self, register: Register, index: Value) -> Cell:
        """A cell that exists."""
        kind = register_kind(register)
        start = self.pointer(self.map.registers[register])
        return Cell(self.e.at(start, self.e.b.mul(index, self.e.i64(kind.room))), kind)

    def counter(self, counter: Counter, index: Value) -> Value:
        """Where a counter that exists is: packets, then bytes."""
        return self.e.at(self.pointer(self.map.counters[counter]), self.e.b.shl(index, self.e.i64(4)))

    def count(self, where: Value) -> None:
        """One packet more."""
        length = self.packet.number(packet.INGRESS_LENGTH)
        for offset, amount in ((0, self.e.i64(1)), (8, length)):
            place = self.e.at(where, offset)
            self.e.store(self.e.b.add(self.e.load(I64, place), amount), place)

    # ---- Python

    def call(self, kind: Call, number: int, a: Value, b: Value) -> Value:
        """Ask Python."""
        self.e.count()
        kind_of_pointer = ir.PointerType(ir.FunctionType(I64, [I64, I64, I64, I64]))
        function = self.e.load(kind_of_pointer, self.e.word(self.state, int(Word.CALLBACK)))
        return self.e.b.call(function, [self.e.i64(kind), self.e.i64(number), a, b])

    def hand_over(self, values: Sequence[tuple[Number, bool]], position: int = 0) -> None:
        """Put numbers where Python finds them, from this word on."""
        start = self.pointer(Word.VALUES)
        for value, _ in values:
            for limb in self.n.limbs(value):
                self.e.store(limb, self.e.word(start, position))
                position += 1

    # ---- hashes and failures

    def calculation(self, calculation: Calculation) -> Value:
        """The result of a calculation, in 64 bits."""
        return self.calculate(calculation)

    def fail(self, failure: Failure, value: Number, signed: bool, limit: int) -> None:
        """End the frame here; `value` and `limit` go into the message."""
        low, high = self.n.limbs(self.n.resize(value, 128, signed))
        self.set_word(Word.FAILURE, self.e.i64(failure))
        self.set_word(Word.FAILURE_LOW, low)
        self.set_word(Word.FAILURE_HIGH, high)
        self.set_word(Word.FAILURE_LIMIT, self.e.i64(limit))
        self.e.jump(self.failed)


def _nothing_calculated(_calculation: Calculation) -> Value:
    raise AssertionError("calculations are written by checksums.py")
