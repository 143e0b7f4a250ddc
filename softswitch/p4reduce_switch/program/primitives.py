"""BMv2 primitives to Python statements, one small method each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import layout as slots
from .errors import UnsupportedConstruct
from .expressions import Expressions
from .layout import Layout, Stack
from .references import HeaderRef
from .source import Source
from .values import Value, unsigned, wrap

Json = dict[str, Any]

DROP_PORT = 511


@dataclass
class Resources:
    """Names, in the generated module, of the objects that primitives use."""

    registers: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # list name, size, bitwidth
    counters: dict[str, tuple[str, str, int]] = field(default_factory=dict)  # packet list, byte list, size
    meters: dict[str, tuple[str, int]] = field(default_factory=dict)  # meter name, size
    calculations: dict[str, tuple[str, int]] = field(default_factory=dict)  # function name, result width


class Primitives:
    """Writes the statements of primitive calls to `source`."""

    def __init__(
        self, source: Source, layout: Layout, expressions: Expressions, resources: Resources
    ) -> None:
        self.source = source
        self.layout = layout
        self.expressions = expressions
        self.resources = resources

    def emit(self, op: str, parameters: list[Json]) -> None:
        """One primitive call."""
        method = getattr(self, "do_" + op, None)
        if method is None:
            raise UnsupportedConstruct(f"primitive {op}")
        method(*parameters)

    # ---- assignments

    def store(self, target: Json, value: Value) -> None:
        """Assign an integer to a field, a field of a stack element, or a register cell."""
        while target["type"] == "expression" and "op" not in target["value"]:
            target = target["value"]
        if target["type"] == "field":
            header = self.layout.header(target["value"][0])
            kind = header.type.field(target["value"][1])
            self._store_field(HeaderRef(header.type, str(header.base)), kind.offset, value)
        elif target["type"] == "expression" and target["value"]["op"] == "access_field":
            inner = target["value"]
            self._store_field(self.expressions.header(inner["left"]), int(inner["right"]), value)
        elif target["type"] == "register":
            self.do_register_write(
                {"type": "register_array", "value": target["value"][0]}, target["value"][1], value
            )
        else:
            raise UnsupportedConstruct(f"assignment to {target['type']} {target['value']}")

    def _store_field(self, ref: HeaderRef, offset: int, value: Value) -> None:
        kind = ref.type.fields[offset]
        if kind.varbit:
            raise UnsupportedConstruct(f"assignment of a number to the varbit field {kind.name}")
        self.source.add(f"{ref.slot(offset)} = {wrap(value, kind.width, kind.signed).code}")

    def do_assign(self, target: Json, value: Json) -> None:
        self.store(target, self.expressions.data(value))

    do_modify_field = do_assign

    def do_assign_VL(self, target: Json, value: Json) -> None:
        refs = []
        for json in (target, value):
            if json["type"] != "field":
                raise UnsupportedConstruct(f"assign_VL with a {json['type']}")
            header = self.layout.header(json["value"][0])
            refs.append(
                (
                    header.base + header.type.field(json["value"][1]).offset,
                    header.base + header.type.length_offset,
                )
            )
        (to, to_length), (source, source_length) = refs
        self.source.add(f"f[{to}] = f[{source}]; f[{to_length}] = f[{source_length}]")

    def do_assign_header(self, target: Json, value: Json) -> None:
        to, source = self.expressions.header(target), self.expressions.header(value)
        with self.source.block(f"if {source.valid}:"):
            self.source.add(f"{to.slots(to.type.slots)} = {source.slots(to.type.slots)}")
            self._invalidate(to.rivals)
        with self.source.block("else:"):
            self.source.add(f"{to.valid} = 0")

    do_copy_header = do_assign_header

    def _invalidate(self, valid_slots: tuple[str, ...]) -> None:
        if valid_slots:
            self.source.add(" = ".join(valid_slots) + " = 0")

    def do_assign_union(self, target: Json, value: Json) -> None:
        to, source = self.expressions.union(target), self.expressions.union(value)
        size = to.union.slots
        self.source.add(f"f[{to.start}:{to.start} + {size}] = f[{source.start}:{source.start} + {size}]")

    def do_assign_header_stack(self, target: Json, value: Json) -> None:
        to, source = self.expressions.stack(target["value"]), self.expressions.stack(value["value"])
        size = to.size * to.stride
        self.source.add(f"f[{to.next}] = f[{source.next}]")
        self.source.add(f"f[{to.base}:{to.base + size}] = f[{source.base}:{source.base + size}]")

    do_assign_union_stack = do_assign_header_stack

    # ---- validity

    def _length(self, ref: HeaderRef) -> str:
        fixed = ref.type.fixed_bits // 8
        return f"{fixed} + ({ref.slot(ref.type.length_offset)} >> 3)" if ref.type.varbit else str(fixed)

    def do_add_header(self, target: Json) -> None:
        ref = self.expressions.header(target)
        with self.source.block(f"if not {ref.valid}:"):
            fresh = (0,) * ref.type.valid_offset + (1,)
            self.source.add(f"{ref.slots(ref.type.slots)} = {fresh}")
            self._invalidate(ref.rivals)
            self.source.add(f"f[{slots.LENGTH}] += {ref.type.fixed_bits // 8}")

    def do_remove_header(self, target: Json) -> None:
        ref = self.expressions.header(target)
        with self.source.block(f"if {ref.valid}:"):
            self.source.add(f"f[{slots.LENGTH}] -= {self._length(ref)}")
            self.source.add(f"{ref.valid} = 0")

    def _stack_shift(self, target: Json, count: Json) -> tuple[Stack, int]:
        stack = self.expressions.stack(target["value"])
        number = self.expressions.data(count).constant
        if number is None:
            raise UnsupportedConstruct(f"push or pop of {stack.name} by an amount that is not constant")
        return stack, number

    def do_push(self, target: Json, count: Json) -> None:
        stack, number = self._stack_shift(target, count)
        end, shift = stack.base + stack.size * stack.stride, min(number, stack.size) * stack.stride
        self.source.add(f"f[{stack.next}] = min({stack.size}, f[{stack.next}] + {number})")
        self.source.add(f"f[{stack.base}:{end}] = [0] * {shift} + f[{stack.base}:{end - shift}]")

    def do_pop(self, target: Json, count: Json) -> None:
        stack, number = self._stack_shift(target, count)
        end, shift = stack.base + stack.size * stack.stride, min(number, stack.size) * stack.stride
        self.source.add(f"f[{stack.next}] = max(0, f[{stack.next}] - {number})")
        self.source.add(f"f[{stack.base}:{end}] = f[{stack.base + shift}:{end}] + [0] * {shift}")

    # ---- what happens to the packet

    def _set_target_field(self, name: str, value: int) -> None:
        found = self.layout.find(name)
        if found is not None:
            self.source.add(f"f[{found[0]}] = {value}")

    def do_mark_to_drop(self, *_standard_metadata: Json) -> None:
        self._set_target_field("standard_metadata.egress_spec", DROP_PORT)
        self._set_target_field("intrinsic_metadata.mcast_grp", 0)

    do_drop = do_mark_to_drop

    def do_exit(self) -> None:
        self.source.add(f"f[{slots.EXIT}] = 1")

    def do_no_op(self) -> None:
        pass

    def _set(self, slot: int, value: Value, mask: int = 0xFFFF) -> None:
        self.source.add(f"f[{slot}] = {wrap(value, mask.bit_length(), False).code}")

    def do_clone_ingress_pkt_to_egress(self, session: Json, field_list: Json) -> None:
        number = wrap(self.expressions.data(session), 15, False)
        self.source.add(f"f[{slots.CLONE}] = {number.code} + 1")
        self._set(slots.CLONE_FIELDS, self.expressions.data(field_list))

    do_clone_egress_pkt_to_egress = do_clone_ingress_pkt_to_egress

    def do_resubmit(self, field_list: Json) -> None:
        self._set(slots.RESUBMIT, self.expressions.data(field_list))

    def do_recirculate(self, field_list: Json) -> None:
        self._set(slots.RECIRCULATE, self.expressions.data(field_list))

    def do_generate_digest(self, _receiver: Json, learn_list: Json) -> None:
        self._set(slots.DIGEST, self.expressions.data(learn_list))

    def do_truncate(self, length: Json) -> None:
        self.source.add(
            f"f[{slots.TRUNCATE}] = min(f[{slots.TRUNCATE}], {self.expressions.data(length).code})"
        )

    # ---- state

    def _bounded(self, index: Value, size: int) -> tuple[str, str | None]:
        """(index, condition under which it exists): BMv2 ignores accesses out of bounds."""
        if index.within(0, size - 1):
            return index.code, None
        least = "" if index.low is not None and index.low >= 0 else "0 <= "
        if index.code.startswith("f[") and index.code[2:-1].isdigit():
            return index.code, f"if {least}{index.code} < {size}:"
        self.source.add(f"i = {index.code}")
        return "i", f"if {least}i < {size}:"

    def _guarded(self, condition: str | None, *lines: str) -> None:
        if condition is None:
            for line in lines:
                self.source.add(line)
        else:
            with self.source.block(condition):
                for line in lines:
                    self.source.add(line)

    def do_count(self, counter: Json, index: Json) -> None:
        packets, bytes_, size = self.resources.counters[counter["value"]]
        code, condition = self._bounded(self.expressions.data(index), size)
        self._guarded(condition, f"{packets}[{code}] += 1", f"{bytes_}[{code}] += f[{slots.INGRESS_LENGTH}]")

    def do_register_read(self, target: Json, register: Json, index: Json) -> None:
        name, size, width = self.resources.registers[register["value"]]
        code, condition = self._bounded(self.expressions.data(index), size)
        cell = unsigned(f"{name}[{code}]", width)
        if condition is None:
            self.store(target, cell)
        else:
            with self.source.block(condition):
                self.store(target, cell)

    def do_register_write(self, register: Json, index: Json, value: Json | Value) -> None:
        name, size, width = self.resources.registers[register["value"]]
        number = value if isinstance(value, Value) else self.expressions.data(value)
        code, condition = self._bounded(self.expressions.data(index), size)
        self._guarded(condition, f"{name}[{code}] = {wrap(number, width, False).code}")

    def do_execute_meter(self, meter: Json, index: Json, target: Json) -> None:
        name, size = self.resources.meters[meter["value"]]
        code, condition = self._bounded(self.expressions.data(index), size)
        with self.source.block(condition or "if True:"):
            self.store(target, Value(f"{name}.execute({code}, f[{slots.INGRESS_LENGTH}])", 0, 2))

    def do_modify_field_with_hash_based_offset(
        self, target: Json, base: Json, calculation: Json, size: Json
    ) -> None:
        name, width = self.resources.calculations[calculation["value"]]
        # Both are 64 bits wide on BMv2, and a modulus of 0 counts as 1.
        modulus = wrap(self.expressions.data(size), 64, False)
        start = wrap(self.expressions.data(base), 64, False)
        code = f"{name}(f)"
        if modulus.constant is None:
            code = f"{code} % ({modulus.code} or 1)"
        elif modulus.constant < 1 << width:
            code = f"{code} % {modulus.constant or 1}"
        self.store(target, Value(f"({code} + {start.code})"))

    def do_modify_field_rng_uniform(self, target: Json, low: Json, high: Json) -> None:
        self.source.add(f"lo = {self.expressions.data(low).code}; hi = {self.expressions.data(high).code}")
        with self.source.block("if lo <= hi:"):
            self.store(target, Value("random.randint(lo, hi)"))

    # ---- checks and messages

    def do_assert(self, condition: Json) -> None:
        with self.source.block(f"if not {self.expressions.boolean(condition)}:"):
            self.source.add("raise ExecutionError('an assert or assume of the program failed')")

    do_assume = do_assert

    def do_log_msg(self, text: Json, values: Json) -> None:
        items = "".join(f"{self.expressions.data(item).code}, " for item in values["value"])
        self.source.add(f"log({self.source.bind('text', str(text['value']))}, ({items}))")
