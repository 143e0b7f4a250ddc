"""The function that runs a batch: for each frame the whole pipeline, from the parser to the deparsed copies.

For programs whose packets pass the pipeline once and at once (no clone, resubmit, recirculate or queue).
"""

from __future__ import annotations

from p4reduce_runtime.records import dtype_of, offset_of
from p4reduce_switch.program import batch, packet
from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir.features import features, walk
from p4reduce_switch.program.ir.places import Header
from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.ir.statements import (
    AddHeader,
    CopyHeader,
    CopyStack,
    CopyUnion,
    CopyVarbit,
    PopFront,
    PushFront,
    RemoveHeader,
    Store,
)
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.checksums import Checksums
from p4reduce_switch.program.llvm.control import ControlWriter
from p4reduce_switch.program.llvm.deparser import Deparser, longest
from p4reduce_switch.program.llvm.emitter import I32, I64, POINTER, Emitter, Module, Value
from p4reduce_switch.program.llvm.emitters import emitters_of
from p4reduce_switch.program.llvm.helpers import Helpers
from p4reduce_switch.program.llvm.host_abi import HostAbi
from p4reduce_switch.program.llvm.parser import ParserWriter
from p4reduce_switch.program.memory import StateOffsets, Word
from p4reduce_switch.program.state.replication import MULTICAST_GROUPS
from p4reduce_switch.program.steps import Step
from p4reduce_switch.program.traffic import NORMAL, REPLICATION

RUN_BATCH = "run_batch"
LIST_BITS = 16
"""Bits of a digest number."""


class BatchWriter:
    """Emits `run_batch`."""

    def __init__(
        self, module: Module, program: Program, layout: Layout, offsets: StateOffsets, host_abi: HostAbi
    ) -> None:
        self.program = program
        self.layout = layout
        meta = program.standard
        if any(slot is not None and layout.kinds[slot].bits > 63 for slot in (meta.egress_spec, meta.mcast_grp)):
            raise UnsupportedConstructError("ports and multicast groups of more than 63 bits")
        self.reads = features(program).reads
        function = module.function(RUN_BATCH, I64, [POINTER], inner=False)
        self.e = e = Emitter(module, function)
        self.batch = function.args[0]
        state = e.load_pointer(self._field("program"))
        record = e.load_pointer(e.word(state, int(Word.RECORD)))
        self.failed = e.block()
        self.emitters = emitters_of(e, Helpers(module), program, layout, offsets, state, record, self.failed, host_abi)
        self.packet, self.context, self.x, self.n = (
            self.emitters.packet,
            self.emitters.context,
            self.emitters.x,
            self.emitters.n,
        )
        self.frame, self.length = e.local(POINTER), e.local(I64)
        self.payload, self.payload_length = e.local(POINTER), e.local(I64)
        self.out_port = e.local(I64)
        """The port of a packet in egress, which simple_switch keeps beside the program's egress_port."""
        if self.context.held is not None:
            e.store(e.i64(0), self.context.held)
        self.frames_out, self.bytes_out = e.local(I64), e.local(I64)
        self.checksums = Checksums(self.x, self.context, self._payload)
        self._write()
        e.end()

    def _payload(self) -> tuple[Value, Value]:
        return self.e.load(POINTER, self.payload), self.e.load(I64, self.payload_length)

    def _field(self, name: str) -> Value:
        """Return a pointer to a field of the batch."""
        return self.e.at(self.batch, offset_of(batch.Batch, name))

    def _in(self, name: str) -> Value:
        return self.e.load(I64, self._field(name))

    def _frame_field(self, table: str, index: Value, name: str) -> Value:
        """Return a pointer to a field of a frame of a table of the batch."""
        e = self.e
        row = e.at(e.load_pointer(self._field(table)), e.b.mul(index, e.i64(dtype_of(batch.Frame).itemsize)))
        return e.at(row, offset_of(batch.Frame, name))

    def _write(self) -> None:
        e = self.e
        head, start, check, event, done = e.block(), e.block(), e.block(), e.block(), e.block()
        end, after, full = e.block(), e.block(), e.block()
        e.continue_in(head)
        number, frames = self._in("frames_run"), self._in("frames")
        e.b.cbranch(self.n.less(number, frames, True), check, done)

        e.b.position_at_end(check)
        length = e.load(I64, self._frame_field("in_frames", number, "length"))
        copies = self.context.word(Word.COPIES)
        most = e.b.add(length, e.i64(longest(self.program.deparser, self.layout)))
        bytes_left = e.b.sub(self._in("out_size"), self._in("bytes_out"))
        frames_left = e.b.sub(self._in("out_capacity"), self._in("frames_out"))
        short = e.b.or_(self.n.less(bytes_left, e.b.mul(most, copies), True), self.n.less(frames_left, copies, True))
        e.b.cbranch(short, full, start)

        e.b.position_at_end(start)
        e.store(length, self.length)
        offset = e.load(I64, self._frame_field("in_frames", number, "offset"))
        e.store(e.at(e.load_pointer(self._field("in_bytes")), offset), self.frame)
        e.store(self._in("frames_out"), self.frames_out)
        e.store(self._in("bytes_out"), self.bytes_out)
        e.store(e.i64(0), self.payload_length)
        e.store(e.load(POINTER, self.frame), self.payload)
        self._run(e.load(I64, self._frame_field("in_frames", number, "port")))
        e.store(e.load(I64, self.frames_out), self._field("frames_out"))
        e.store(e.load(I64, self.bytes_out), self._field("bytes_out"))
        e.continue_in(end)

        e.b.position_at_end(self.failed)
        self.context.unlock()
        e.b.branch(end)

        e.b.position_at_end(end)
        e.store(e.b.add(number, e.i64(1)), self._field("frames_run"))
        reported = e.b.or_(self.context.word(Word.DIGEST), self.context.word(Word.FAILURE))
        e.b.cbranch(self.n.is_zero(reported), after, event)
        e.b.position_at_end(after)
        e.b.branch(head)
        e.b.position_at_end(event)
        e.b.ret(e.i64(batch.EVENT))
        e.b.position_at_end(full)
        e.b.ret(e.i64(batch.FULL))
        e.b.position_at_end(done)
        e.b.ret(e.i64(batch.DONE))

    # ---- one frame

    def _run(self, port: Value) -> None:
        e, p, program = self.e, self.emitters, self.program
        frame, length = e.load(POINTER, self.frame), e.load(I64, self.length)
        if any(table.supports_timeout for table in program.tables):
            self.context.set_word(Word.NOW_US, self._in("now_us"))
        self._new_packet(port, length)
        done = ParserWriter(p.statements, program.errors, frame, length).write(program.parser)
        e.store(e.at(frame, done), self.payload)
        e.store(e.b.sub(length, done), self.payload_length)
        self.checksums.verify([checksum for checksum in program.checksums if checksum.verify])
        for slot, source in (
            (program.standard.parser_error, packet.PARSER_ERROR),
            (program.standard.checksum_error, packet.CHECKSUM_ERROR),
        ):
            if slot is not None:
                self._assign(slot, self.packet.number(source))
        self.context.trace(Step.CHECKED)
        ControlWriter(p.actions, p.context).write(program.ingress)
        self.context.unlock()
        self._dispatch()

    def _new_packet(self, port: Value, length: Value) -> None:
        meta = self.program.standard
        e = self.e
        if self.layout.cleared:
            e.clear(self.packet.record, self.layout.cleared)
        for slot in (*self.packet.locals, *self.packet.places):
            self.packet.clear(self.packet.cell(slot))
        self.packet.set(packet.TRUNCATE, packet.NO_TRUNCATION)
        self.packet.set(packet.PARSER_ERROR, self.program.errors.no_error)
        for slot in (packet.LENGTH, packet.INGRESS_LENGTH, meta.packet_length):
            self._assign(slot, length)
        self._assign(meta.ingress_port, port)
        self._assign(meta.instance_type, e.i64(NORMAL))
        self._time(meta.ingress_time)

    def _assign(self, slot: int, value: Value) -> None:
        """Store a non-negative 64-bit number into a slot of any width, of which emitted code assumes that it fits."""
        cell = self.packet.cell(slot)
        if cell.kind.bits < 64:
            value = self.e.b.and_(value, self.e.i64((1 << cell.kind.bits) - 1))
        size = 8 * cell.kind.aligned_bytes if cell.kind.wide else 8 * cell.kind.bytes_
        self.packet.store(cell, self.n.resize(value, size, False))

    def _time(self, slot: int | None) -> None:
        """Set the timestamps, if the program reads them."""
        if slot is not None and slot in self.reads:
            self._assign(slot, self._in("now_us"))

    def _dispatch(self) -> None:
        """Emit what follows ingress: the digest, then egress for each copy."""
        e, meta = self.e, self.program.standard
        self.packet.set(packet.EXIT, 0)
        self._send_digest()
        first, count = e.local(I64), e.local(I64)
        e.store(e.i64(0), first)
        e.store(e.i64(1), count)
        group = e.i64(0) if meta.mcast_grp is None else self.packet.number(meta.mcast_grp)
        multicast = e.b.not_(self.n.is_zero(group))

        def replicate() -> None:
            self._assign(meta.instance_type, e.i64(REPLICATION))
            known = self.n.less(group, e.i64(MULTICAST_GROUPS), False)
            e.store(e.i64(0), count)
            with e.if_then(known):
                entry = e.word(self.context.pointer(Word.GROUPS), group)
                for where, offset in ((first, 0), (count, 4)):
                    e.store(e.b.zext(e.load(I32, e.at(entry, offset), align=4), I64), where)
            self.context.trace(Step.MULTICAST, None, lambda: [(group, False), (e.load(I64, count), False)])

        def send() -> None:
            port = self.packet.number(meta.egress_spec)
            dropped = e.b.icmp_unsigned("==", port, e.i64(self.program.target.drop_port))
            e.store(e.b.zext(e.b.not_(dropped), I64), count)
            self._assign(meta.instance_type, e.i64(NORMAL))
            e.store(port, self.out_port)
            self.context.trace(Step.UNICAST, None, lambda: [(port, False)])

        e.if_else(multicast, replicate, send)
        self._copies(multicast, e.load(I64, first), e.load(I64, count))

    def _send_digest(self) -> None:
        """Store the fields of a digest for the host."""
        digests = [(id_, digest) for id_, digest in self.program.digests.items() if 0 < id_ < 1 << LIST_BITS]
        if not digests:
            return
        number, after = self.packet.number(packet.DIGEST), self.e.block()
        choice = self.e.b.switch(number, after)
        for id_, digest in digests:
            block = self.e.block()
            choice.add_case(self.e.i64(id_), block)
            self.e.b.position_at_end(block)
            values = []
            for slot in digest.fields:
                cell = self.packet.cell(slot.number)
                values.append((self.packet.load(cell), cell.kind.signed))
            self.context.store_values(values)
            self.context.set_word(Word.DIGEST, self.e.i64(id_))
            self.e.b.branch(after)
        self.e.b.position_at_end(after)

    def _copies(self, multicast: Value, first: Value, count: Value) -> None:
        """Emit egress for each copy, starting from the same packet."""
        e, meta = self.e, self.program.standard
        variables = [*(cell.pointer for cell in self.packet.locals.values()), *self.packet.places.values()]
        saved = [(variable, variable.allocated_type, e.local(variable.allocated_type)) for variable in variables]
        for variable, kind, copy in saved:
            e.store(e.load(kind, variable), copy)
        saves_record = bool(self.layout.size) and self._egress_writes_record()
        several = self.n.less(e.i64(1), count, False)
        if saves_record:
            with e.if_then(several):
                e.copy(self.context.pointer(Word.SAVED), self.packet.record, self.layout.size)
        with e.loop(count) as index:
            for variable, kind, copy in saved:
                e.store(e.load(kind, copy), variable)
            if saves_record:
                with e.if_then(several):
                    e.copy(self.packet.record, self.context.pointer(Word.SAVED), self.layout.size)

            def replica(index: Value = index) -> None:
                entry = e.word(self.context.pointer(Word.REPLICAS), e.b.add(first, index))
                e.store(e.b.zext(e.load(I32, entry, align=4), I64), self.out_port)
                if meta.egress_rid is not None:
                    self._assign(meta.egress_rid, e.b.zext(e.load(I32, e.at(entry, 4), align=4), I64))
                self.context.trace(
                    Step.COPY,
                    None,
                    lambda: [(e.b.zext(e.load(I32, e.at(entry, offset), align=4), I64), False) for offset in (0, 4)],
                )

            e.if_else(multicast, replica, lambda: None)
            self._egress()

    def _egress_writes_record(self) -> bool:
        """Return whether egress may change the record."""
        updated = tuple(checksum for checksum in self.program.checksums if checksum.update)
        return any(checksum.target.slot in self.layout.offsets for checksum in updated) or any(
            self._writes_record(node) for node in walk(self.program.egress)
        )

    def _writes_record(self, node: object) -> bool:
        if isinstance(node, Store):
            return node.target.slot is None or node.target.slot in self.layout.offsets
        if isinstance(node, RemoveHeader):
            return not isinstance(node.header, Header) or node.header.valid in self.layout.offsets
        if isinstance(node, (AddHeader, CopyHeader)):
            header = node.header if isinstance(node, AddHeader) else node.target
            if not isinstance(header, Header):
                return True
            slots = (*range(header.base, header.base + header.type.slots), *header.siblings)
            return any(slot in self.layout.offsets for slot in slots)
        return isinstance(node, (CopyStack, CopyUnion, CopyVarbit, PushFront, PopFront))

    def _egress(self) -> None:
        e, meta, p = self.e, self.program.standard, self.emitters
        self._time(meta.egress_time)
        self._assign(meta.egress_port, e.load(I64, self.out_port))
        self._assign(meta.egress_spec, e.i64(self.program.target.not_dropped))
        self._assign(meta.packet_length, self.packet.number(packet.LENGTH))
        ControlWriter(p.actions, p.context).write(self.program.egress)
        self.context.trace(Step.LEFT, None, lambda: [(self.packet.number(meta.egress_spec), False)])
        dropped = e.b.icmp_unsigned("==", self.packet.number(meta.egress_spec), e.i64(self.program.target.drop_port))
        with e.if_then(e.b.not_(dropped)):
            self.context.trace(Step.DEPARSER)
            self.checksums.update([checksum for checksum in self.program.checksums if checksum.update])
            frames, bytes_ = e.load(I64, self.frames_out), e.load(I64, self.bytes_out)
            target = e.at(e.load_pointer(self._field("out_bytes")), bytes_)
            written = Deparser(self.x, self.context).write(self.program.deparser, target, *self._payload())
            for field, value in (("offset", bytes_), ("length", written), ("port", e.load(I64, self.out_port))):
                e.store(value, self._frame_field("out_frames", frames, field))
            self.context.trace(Step.DEPARSED)
            self.context.trace(Step.SENT, None, lambda: [(e.load(I64, self.out_port), False), (written, False)])
            e.store(e.b.add(bytes_, written), self.bytes_out)
            e.store(e.b.add(frames, e.i64(1)), self.frames_out)
