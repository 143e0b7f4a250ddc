"""The comparison of keys with the members of a parser value set."""

from __future__ import annotations

from collections.abc import Sequence

from p4reduce_switch.program.ir import program
from p4reduce_switch.program.llvm.codegen_context import CodegenContext
from p4reduce_switch.program.llvm.emitter import I64, Emitter, Value
from p4reduce_switch.program.llvm.numbers import Number, size_for
from p4reduce_switch.program.memory import ValueSetWord


def emit_value_set_match(
    e: Emitter, context: CodegenContext, declared: program.ValueSet, keys: Sequence[Number]
) -> Value:
    """Return whether any member of a value set matches these keys, each of size `size_for`."""
    n, base = context.n, context.offsets.value_sets[declared]
    members = context.pointer(base + ValueSetWord.MEMBERS)
    sizes = [size_for(width) // 64 for width in declared.widths]
    found = e.local(I64)
    e.store(e.i64(0), found)
    with e.loop(context.word(base + ValueSetWord.COUNT)) as index:
        start = e.word(members, e.b.mul(index, e.i64(4 * sum(sizes))))
        matches, offset = e.bit(True), 0
        for key, words in zip(keys, sizes, strict=True):
            mask, value, low, high = (
                n.from_limbs([e.load(I64, e.word(start, offset + part * words + word)) for word in range(words)])
                for part in range(4)
            )
            outside = e.b.or_(n.less(key, low, False), n.less(high, key, False))
            matches = e.b.and_(matches, e.b.and_(n.equal(n.and_(key, mask), value), e.b.not_(outside)))
            offset += 4 * words
        with e.if_then(matches):
            e.store(e.i64(1), found)
    return e.b.not_(n.is_zero(e.load(I64, found)))
