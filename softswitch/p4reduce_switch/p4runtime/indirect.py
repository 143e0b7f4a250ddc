"""Indirect counters, meters and registers, and parser value sets: P4Runtime's requests on a program's externs.

BMv2's P4Runtime server has no registers and no value sets. The meters of this switch do not count by color.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from p4reduce_runtime.p4.v1 import p4data_pb2 as p4d
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import bytestrings
from p4reduce_runtime.p4runtime.schema import CounterInfo, MeterInfo, RegisterInfo, ValueSetInfo
from p4reduce_switch.p4runtime.encoding import decode_matches, encode_matches
from p4reduce_switch.p4runtime.status import Code, RequestError, invalid_argument
from p4reduce_switch.program.state.stateful import Counter, Meter, MeterConfig, Register, ValueSet


@dataclass(frozen=True)
class BoundCounter:
    """An indirect counter of the program bound to its P4Info."""

    info: CounterInfo
    counter: Counter

    def write(self, operation: p4r.Update.Type, request: p4r.CounterEntry) -> None:
        """Set one cell, or all when the index is left out."""
        check_modify(operation, "counter")
        indices = _indices(request, self.counter)
        if request.HasField("data"):
            for index in indices:
                self.counter.write(index, request.data.packet_count, request.data.byte_count)

    def read(self, query: p4r.CounterEntry) -> Iterator[p4r.Entity]:
        """Yield one cell, or all."""
        for index in _indices(query, self.counter):
            entity = p4r.Entity()
            out = entity.counter_entry
            out.counter_id, out.index.index = self.info.id, index
            packets, octets = self.counter.read(index)
            if self.info.packets:
                out.data.packet_count = packets
            if self.info.bytes:
                out.data.byte_count = octets
            yield entity


@dataclass(frozen=True)
class BoundMeter:
    """An indirect meter of the program bound to its P4Info."""

    info: MeterInfo
    meter: Meter

    def write(self, operation: p4r.Update.Type, request: p4r.MeterEntry) -> None:
        """Set the rates of one cell, or of all when the index is left out."""
        check_modify(operation, "meter")
        check_no_color_counts(request, "counter_data")
        indices = _indices(request, self.meter)
        rates = decode_rates(request.config) if request.HasField("config") else None
        for index in indices:
            self.meter.configure(index, rates)

    def read(self, query: p4r.MeterEntry) -> Iterator[p4r.Entity]:
        """Yield the rates of one cell, or of all."""
        check_no_color_counts(query, "counter_data")
        for index in _indices(query, self.meter):
            entity = p4r.Entity()
            out = entity.meter_entry
            out.meter_id, out.index.index = self.info.id, index
            encode_rates(self.meter.read(index), out.config)
            yield entity


@dataclass(frozen=True)
class BoundRegister:
    """A register of the program bound to its P4Info."""

    info: RegisterInfo
    register: Register

    def write(self, operation: p4r.Update.Type, request: p4r.RegisterEntry) -> None:
        """Set one cell, or all when the index is left out."""
        self._check_readable()
        check_modify(operation, "register")
        indices = _indices(request, self.register)
        value = self._decode(request.data)
        for index in indices:
            self.register.write(index, value)

    def read(self, query: p4r.RegisterEntry) -> Iterator[p4r.Entity]:
        """Yield one cell, or all; none for a wildcard when P4Runtime cannot represent them."""
        if not query.register_id and not self.info.kind:
            return
        self._check_readable()
        yield from map(self._entity, _indices(query, self.register))

    def _check_readable(self) -> None:
        if not self.info.kind:
            reason = f"the cells of register {self.info.name} are of a type that is not one number"
            raise RequestError(Code.UNIMPLEMENTED, reason)

    def _entity(self, index: int) -> p4r.Entity:
        entity = p4r.Entity()
        out = entity.register_entry
        out.register_id, out.index.index = self.info.id, index
        value = self.register.read(index)
        if self.info.kind == "bool":
            out.data.bool = bool(value)
        else:
            setattr(out.data, _CELL_FIELDS[self.info.kind], bytestrings.encode(value, self.info.bitwidth))
        return entity

    def _decode(self, data: p4d.P4Data) -> int:
        """Return the bits of a cell; INVALID_ARGUMENT when the data is not of its type, or does not fit."""
        wanted = _CELL_FIELDS[self.info.kind]
        if data.WhichOneof("data") != wanted:
            invalid_argument(f"register {self.info.name} has cells of type {self.info.kind}, in the field {wanted}")
        value = int(data.bool) if wanted == "bool" else bytestrings.decode(getattr(data, wanted))
        if value >> self.info.bitwidth:
            invalid_argument(f"register {self.info.name}: {value} does not fit its cells of {self.info.bitwidth} bits")
        return value


_CELL_FIELDS: Final = {"bool": "bool", "enum": "enum_value", "bit": "bitstring", "int": "bitstring"}
"""Type of a register's cells -> the field of P4Data that has their value."""


@dataclass(frozen=True)
class BoundValueSet:
    """A parser value set of the program bound to its P4Info."""

    info: ValueSetInfo
    value_set: ValueSet

    def write(self, operation: p4r.Update.Type, request: p4r.ValueSetEntry) -> None:
        """Replace all members."""
        check_modify(operation, "value set")
        name, size = self.info.name, self.info.size
        members = [decode_matches(self.info.keys, member.match, f"value set {name}") for member in request.members]
        if len(set(members)) < len(members):
            raise RequestError(Code.ALREADY_EXISTS, f"a member of value set {name} is given twice")
        if len(members) > size:
            raise RequestError(Code.RESOURCE_EXHAUSTED, f"value set {name} holds {size} members, not {len(members)}")
        self.value_set.set_members(members)

    def read(self, query: p4r.ValueSetEntry) -> list[p4r.Entity]:
        """Return all members, as one entity."""
        entity = p4r.Entity()
        out = entity.value_set_entry
        out.value_set_id = self.info.id
        for member in self.value_set.members:
            encode_matches(self.info.keys, member, out.members.add())
        return [entity]


# ---- shared with the direct resources of tables


def check_modify(operation: p4r.Update.Type, kind: str) -> None:
    """Raise INVALID_ARGUMENT for inserts and deletes of what the program declares."""
    if operation != p4r.Update.MODIFY:
        invalid_argument(f"a {kind} can only be modified")


def decode_rates(config: p4r.MeterConfig) -> MeterConfig:
    """Return the rates in a request's MeterConfig; INVALID_ARGUMENT when no two-rate marker can have them."""
    if min(config.cir, config.cburst, config.pir, config.pburst) < 0:
        invalid_argument("the rates and bursts of a meter are not negative")
    if config.eburst:
        invalid_argument("a meter of two rates has no excess burst (eburst)")
    if config.pir < config.cir:
        invalid_argument(f"the peak rate {config.pir} of a meter is below its committed rate {config.cir}")
    return MeterConfig(config.cir, config.cburst, config.pir, config.pburst)


def encode_rates(rates: MeterConfig | None, out: p4r.MeterConfig) -> None:
    """Write rates into an answer's MeterConfig; it stays unset for a meter without rates."""
    if rates is not None:
        out.SetInParent()
        out.cir, out.cburst, out.pir, out.pburst = rates.cir, rates.cburst, rates.pir, rates.pburst


def check_no_color_counts(request: Message, field: str) -> None:
    """Raise UNIMPLEMENTED when a request has the counts by color that some targets offer with a meter."""
    if request.HasField(field):
        raise RequestError(Code.UNIMPLEMENTED, "the meters of this switch do not count by colour")


def _indices(
    request: p4r.CounterEntry | p4r.MeterEntry | p4r.RegisterEntry, array: Counter | Meter | Register
) -> Sequence[int]:
    """Return the cells of an array that a request names: one, or all when the index is left out."""
    if not request.HasField("index"):
        return range(array.size)
    index = request.index.index
    if index < 0:
        invalid_argument("an index is not negative")
    if index >= array.size:
        raise RequestError(Code.OUT_OF_RANGE, f"{array.kind} {array.name} has {array.size} cells, no {index}")
    return [index]
