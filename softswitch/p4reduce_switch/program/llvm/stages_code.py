"""Functions that each run one block of a program over a packet's record.

For programs whose packets may pass the pipeline again, or wait in queues: the traffic manager in Python calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from p4reduce_switch.program.ir.program import Checksum, Control, Program
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.checksums import Checksums
from p4reduce_switch.program.llvm.control import ControlWriter
from p4reduce_switch.program.llvm.deparser import Deparser
from p4reduce_switch.program.llvm.emitter import I64, POINTER, Emitter, Module, Value
from p4reduce_switch.program.llvm.emitters import Emitters, emitters_of
from p4reduce_switch.program.llvm.helpers import Helpers
from p4reduce_switch.program.llvm.host_abi import HostAbi
from p4reduce_switch.program.llvm.parser import ParserWriter
from p4reduce_switch.program.memory import StateOffsets

STAGES = ("parse", "verify", "ingress", "egress", "update", "deparse")
"""Each is a function `int64_t stage_…(state, record, bytes, count, out)`: -1 when the frame failed.

`bytes` are the payload, and for `parse` the whole frame; `parse` returns the parsed bytes. `deparse` writes to `out`
and returns the bytes written."""


class StagesWriter:
    """Emits all of them."""

    def __init__(
        self, module: Module, program: Program, layout: Layout, offsets: StateOffsets, host_abi: HostAbi
    ) -> None:
        self.program = program
        helpers = Helpers(module)
        writers: tuple[Callable[[Emitters, Value, Value, Value], Value], ...] = (
            self._parse,
            partial(self._sums, Checksums.verify, [found for found in program.checksums if found.verify]),
            partial(self._control, program.ingress),
            partial(self._control, program.egress),
            partial(self._sums, Checksums.update, [found for found in program.checksums if found.update]),
            self._deparse,
        )
        for name, write in zip(STAGES, writers, strict=True):
            function = module.function(f"stage_{name}", I64, [POINTER, POINTER, POINTER, I64, POINTER], inner=False)
            state, record, data, count, out = function.args
            emitter = Emitter(module, function)
            failed = emitter.block()
            emitters = emitters_of(emitter, helpers, program, layout, offsets, state, record, failed, host_abi)
            emitter.b.ret(write(emitters, data, count, out))
            emitter.b.position_at_end(failed)
            emitter.b.ret(emitter.i64(-1))
            emitter.end()

    def _parse(self, emitters: Emitters, data: Value, count: Value, _out: Value) -> Value:
        self._checksums(emitters, data, emitters.e.i64(0))
        return ParserWriter(emitters.statements, self.program.errors, data, count).write(self.program.parser)

    def _checksums(self, emitters: Emitters, data: Value, count: Value) -> Checksums:
        return Checksums(emitters.x, emitters.context, lambda: (data, count))

    def _sums(
        self,
        write: Callable[[Checksums, list[Checksum]], None],
        checksums: list[Checksum],
        emitters: Emitters,
        data: Value,
        count: Value,
        _out: Value,
    ) -> Value:
        write(self._checksums(emitters, data, count), checksums)
        return emitters.e.i64(0)

    def _control(self, control: Control, emitters: Emitters, data: Value, count: Value, _out: Value) -> Value:
        self._checksums(emitters, data, count)
        ControlWriter(emitters.actions, emitters.context).write(control)
        return emitters.e.i64(0)

    def _deparse(self, emitters: Emitters, data: Value, count: Value, out: Value) -> Value:
        return Deparser(emitters.x, emitters.context).write(self.program.deparser, out, data, count)
