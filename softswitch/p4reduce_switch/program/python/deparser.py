"""The deparser: the valid headers in their order, then the payload."""

from __future__ import annotations

from p4reduce_switch.program import packet
from p4reduce_switch.program.ir.places import Header
from p4reduce_switch.program.python.expressions import slot
from p4reduce_switch.program.python.source import Source
from p4reduce_switch.program.python.units import pack_units, parts


def write_deparser(source: Source, order: tuple[Header, ...], name: str) -> None:
    """Write `name(f) -> bytes`."""
    with source.block(f"def {name}(f):"):
        source.add("out = []")
        for header in order:
            before, varbit, after = parts(header.type)
            with source.block(f"if f[{header.valid}]:"):
                if before:
                    source.add(f"out.append({pack_units(source, before, header.base)})")
                if varbit:
                    length = slot(header.base, header.type.length_offset)
                    source.add(f"out.append({slot(header.base, varbit.offset)}.to_bytes({length} >> 3, 'big'))")
                if after:
                    source.add(f"out.append({pack_units(source, after, header.base)})")
        source.add(f"out.append(f[{packet.PAYLOAD}])")
        source.add("return b''.join(out)")
