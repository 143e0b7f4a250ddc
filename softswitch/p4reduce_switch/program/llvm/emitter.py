"""Emission of LLVM functions: blocks, loops and local memory, over llvmlite's IRBuilder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from p4reduce_switch.program.errors import UnsupportedConstructError

Value = Any
"""An llvmlite value."""

I1, I8, I32, I64, I128 = (ir.IntType(bits) for bits in (1, 8, 32, 64, 128))
POINTER = ir.PointerType()
VOID = ir.VoidType()
MAX_INSTRUCTIONS = 100_000
"""Loads, stores, blocks and expressions of a program at most: LLVM's time grows with their square."""


class Module:
    """An LLVM module and the intrinsics that it declares."""

    def __init__(self) -> None:
        self.ir = ir.Module(name="p4")
        self.instructions = 0
        self._intrinsics: dict[str, Value] = {}

    def intrinsic(self, name: str, result: Value, arguments: list[Value]) -> Value:
        """Return an LLVM intrinsic."""
        if name not in self._intrinsics:
            self._intrinsics[name] = ir.Function(self.ir, ir.FunctionType(result, arguments), name)
        return self._intrinsics[name]

    def zeros(self, count: int) -> Value:
        """Return a constant of that many zero bytes."""
        name = f"zeros_{count}"
        if name not in self.ir.globals:
            kind = ir.ArrayType(I8, count)
            made = ir.GlobalVariable(self.ir, kind, name)
            made.linkage, made.global_constant, made.initializer = "internal", True, ir.Constant(kind, None)
        return self.ir.globals[name]

    def function(self, name: str, result: Value, arguments: list[Value], *, inner: bool = True) -> Value:
        """Add a function; an `inner` one has internal linkage."""
        made = ir.Function(self.ir, ir.FunctionType(result, arguments), name)
        if inner:
            made.linkage = "internal"
        made.attributes.add("nounwind")
        return made


class Emitter:
    """Emits one function. `b` is the IRBuilder, at the end of the current block."""

    def __init__(self, module: Module, function: Value) -> None:
        self.module = module
        self.function = function
        self._entry = function.append_basic_block("entry")
        self._start = function.append_basic_block("start")
        self._locals = ir.IRBuilder(self._entry)
        self.b = ir.IRBuilder(self._start)
        self._ended = False

    def end(self) -> None:
        """Finish the function."""
        self._locals.branch(self._start)

    def count(self, instructions: int = 1) -> None:
        """Count emitted instructions; UnsupportedConstructError above MAX_INSTRUCTIONS."""
        self.module.instructions += instructions
        if self.module.instructions > MAX_INSTRUCTIONS:
            raise UnsupportedConstructError(f"a program of more than {MAX_INSTRUCTIONS:,} instructions")

    # ---- values and memory

    def i64(self, number: int) -> Value:
        """Return a 64-bit constant, `number` modulo 2^64."""
        return ir.Constant(I64, number & 0xFFFFFFFFFFFFFFFF)

    def bit(self, truth: bool) -> Value:
        """Return a boolean constant."""
        return ir.Constant(I1, int(truth))

    def local(self, kind: Value, count: int = 1, align: int = 8) -> Value:
        """Allocate `count` values of a type on the stack."""
        self.count()
        found = self._locals.alloca(kind, size=ir.Constant(I64, count) if count > 1 else None)
        found.align = align
        found.type = POINTER  # older llvmlite emits the pointee's type, which LLVM rejects
        return found

    def at(self, pointer: Value, offset: Value | int) -> Value:
        """Return a pointer plus an offset in bytes."""
        if isinstance(offset, int):
            if offset == 0:
                return pointer
            offset = self.i64(offset)
        return self.b.gep(pointer, [offset], source_etype=I8)

    def word(self, pointer: Value, index: Value | int) -> Value:
        """Return a pointer to element `index` of an array of 64-bit words."""
        if isinstance(index, int):
            return self.at(pointer, 8 * index)
        return self.b.gep(pointer, [index], source_etype=I64)

    def load(self, kind: Value, pointer: Value, align: int = 8) -> Value:
        """Load a value."""
        self.count()
        return self.b.load(pointer, typ=kind, align=align)

    def store(self, value: Value, pointer: Value, align: int = 8) -> None:
        """Store a value."""
        self.count()
        self.b.store(value, pointer, align=align)

    def load_pointer(self, pointer: Value) -> Value:
        """Load a pointer from memory."""
        return self.load(POINTER, pointer)

    def copy(self, target: Value, source: Value, length: Value | int) -> None:
        """Copy bytes that do not overlap, or are the same."""
        self._move("llvm.memcpy.p0.p0.i64", target, source, length)

    def move(self, target: Value, source: Value, length: Value | int) -> None:
        """Copy bytes that may overlap."""
        self._move("llvm.memmove.p0.p0.i64", target, source, length)

    def _move(self, name: str, target: Value, source: Value, length: Value | int) -> None:
        self.count()
        length = self.i64(length) if isinstance(length, int) else length
        function = self.module.intrinsic(name, VOID, [POINTER, POINTER, I64, I1])
        self.b.call(function, [target, source, length, self.bit(False)])

    def clear(self, target: Value, length: Value | int) -> None:
        """Fill bytes with zeros."""
        self.count()
        length = self.i64(length) if isinstance(length, int) else length
        function = self.module.intrinsic("llvm.memset.p0.i64", VOID, [POINTER, I8, I64, I1])
        self.b.call(function, [target, ir.Constant(I8, 0), length, self.bit(False)])

    # ---- control flow

    def block(self) -> Value:
        """Return a new basic block."""
        self.count()
        return self.function.append_basic_block()

    def continue_in(self, block: Value) -> None:
        """Continue in `block`; the current block branches to it unless it is terminated."""
        if not self.b.block.is_terminated:
            self.b.branch(block)
        self.b.position_at_end(block)

    def jump(self, block: Value) -> None:
        """Branch to `block`; code emitted after it is unreachable."""
        self.b.branch(block)
        self.b.position_at_end(self.block())

    @contextmanager
    def if_then(self, condition: Value) -> Iterator[None]:
        """Run the code emitted inside if the condition holds."""
        inside, after = self.block(), self.block()
        self.b.cbranch(condition, inside, after)
        self.b.position_at_end(inside)
        yield
        self.continue_in(after)

    def if_else(self, condition: Value, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """Emit both branches of a condition."""
        first, second, after = self.block(), self.block(), self.block()
        self.b.cbranch(condition, first, second)
        for block, write in ((first, yes), (second, no)):
            self.b.position_at_end(block)
            write()
            self.b.branch(after)
        self.b.position_at_end(after)

    @contextmanager
    def loop(self, count: Value) -> Iterator[Value]:
        """Run the code emitted inside for 0, 1, … count - 1; yield the index."""
        index = self.local(I64)
        self.store(self.i64(0), index)
        head, body, after = self.block(), self.block(), self.block()
        self.continue_in(head)
        current = self.load(I64, index)
        self.b.cbranch(self.b.icmp_unsigned("<", current, count), body, after)
        self.b.position_at_end(body)
        yield current
        self.store(self.b.add(current, self.i64(1)), index)
        self.b.branch(head)
        self.b.position_at_end(after)
