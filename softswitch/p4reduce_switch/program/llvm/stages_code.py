"""The functions that run one block of a program each, over a record in memory.

They are for programs whose packets may go through the pipeline again: there Python's traffic manager calls them.
"""

from __future__ import annotations

from collections.abc import Callable

from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.checksums import Checksums
from p4reduce_switch.program.llvm.control import ControlWriter
from p4reduce_switch.program.llvm.deparser import Deparser
from p4reduce_switch.program.llvm.emitter import I64, POINTER, Emitter, Module, Value
from p4reduce_switch.program.llvm.handover import Handover
from p4reduce_switch.program.llvm.helpers import Helpers
from p4reduce_switch.program.llvm.parser import ParserWriter
from p4reduce_switch.program.llvm.parts import Parts, parts_of
from p4reduce_switch.program.memory import StateMap

STAGES = ("parse", "verify", "ingress", "egress", "update", "deparse")
"""Each is a function `int64_t stage_…(state, record, bytes, count, out)`: -1 when the frame failed.

`bytes` are the payload, the whole frame for `parse`, which returns how many were parsed; `deparse` writes to `out` and
returns how many."""


class StagesWriter:
    """Writes all of them."""

    def __init__(self, module: Module, program: Program, layout: Layout, map_: StateMap, handover: Handover) -> None:
        self.program = program
        helpers = Helpers(module)
        writers: tuple[Callable[[Parts, Value, Value, Value], Value], ...] = (
            self._parse,
            self._verify,
            self._ingress,
            self._egress,
            self._update,
            self._deparse,
        )
        for name, write in zip(STAGES, writers, strict=True):
            function = module.function(f"stage_{name}", I64, [POINTER, POINTER, POINTER, I64, POINTER], inner=False)
            state, record, data, count, out = function.args
            emitter = Emitter(module, function)
            failed = emitter.block()
            parts = parts_of(emitter, helpers, program, layout, map_, state, record, failed, handover)
            emitter.b.ret(write(parts, data, count, out))
            emitter.b.position_at_end(failed)
            emitter.b.ret(emitter.i64(-1))
            emitter.end()

    def _parse(self, parts: Parts, data: Value, count: Value, _out: Value) -> Value:
        self._checksums(parts, data, parts.e.i64(0))
        return ParserWriter(parts.statements, self.program.errors, data, count).write(self.program.parser)

    def _checksums(self, parts: Parts, data: Value, count: Value) -> Checksums:
        return Checksums(parts.x, parts.world, lambda: (data, count))

    def _verify(self, parts: Parts, data: Value, count: Value, _out: Value) -> Value:
        found = [checksum for checksum in self.program.checksums if checksum.verify]
        self._checksums(parts, data, count).verify(found)
        return parts.e.i64(0)

    def _ingress(self, parts: Parts, data: Value, count: Value, _out: Value) -> Value:
        self._checksums(parts, data, count)
        ControlWriter(parts.actions, parts.world).write(self.program.ingress)
        return parts.e.i64(0)

    def _egress(self, parts: Parts, data: Value, count: Value, _out: Value) -> Value:
        self._checksums(parts, data, count)
        ControlWriter(parts.actions, parts.world).write(self.program.egress)
        return parts.e.i64(0)

    def _update(self, parts: Parts, data: Value, count: Value, _out: Value) -> Value:
        found = [checksum for checksum in self.program.checksums if checksum.update]
        self._checksums(parts, data, count).update(found)
        return parts.e.i64(0)

    def _deparse(self, parts: Parts, data: Value, count: Value, out: Value) -> Value:
        return Deparser(parts.x).write(self.program.deparser, out, data, count)
