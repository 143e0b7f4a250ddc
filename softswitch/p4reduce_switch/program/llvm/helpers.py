"""Helper functions of compiled programs, each emitted only when a program uses it.

Wide numbers are arrays of `count` 64-bit limbs, the lowest first. 128-bit division is here too: LLVM would call
compiler-rt for it, which is not linked.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from p4reduce_switch.program.llvm.emitter import I8, I32, I64, POINTER, VOID, Emitter, Module, Value


class Helpers:
    """The functions of `_FUNCTIONS` as attributes; each is emitted on first use."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Value:
        if name not in _FUNCTIONS:
            raise AttributeError(name)
        result, arguments, write = _FUNCTIONS[name]
        function = self.module.function(f"helper_{name}", result, arguments)
        function.attributes.add("noinline")
        emitter = Emitter(self.module, function)
        write(emitter, *function.args)
        emitter.end()
        setattr(self, name, function)
        return function


def _multiply(e: Emitter, out: Value, a: Value, b: Value, count: Value) -> None:
    """out = a * b modulo 2^(64 count), schoolbook multiplication: 64 x 64 bits in 128 is one machine instruction."""
    wide, word = ir.IntType(128), ir.Constant(ir.IntType(128), 64)
    e.clear(out, e.b.mul(count, e.i64(8)))
    with e.loop(count) as i:
        carry = e.local(I64)
        e.store(e.i64(0), carry)
        x = e.b.zext(e.load(I64, e.word(a, i)), wide)
        with e.loop(e.b.sub(count, i)) as j:
            where = e.word(out, e.b.add(i, j))
            product = e.b.mul(x, e.b.zext(e.load(I64, e.word(b, j)), wide))
            total = e.b.add(product, e.b.zext(e.load(I64, where), wide))
            total = e.b.add(total, e.b.zext(e.load(I64, carry), wide))
            e.store(e.b.trunc(total, I64), where)
            e.store(e.b.trunc(e.b.lshr(total, word), I64), carry)
    e.b.ret_void()


def _divide(e: Emitter, quotient: Value, rest: Value, a: Value, b: Value, count: Value) -> None:
    """Unsigned a / b, b not 0, bit by bit: shift a bit into the rest, and subtract b where the rest is not smaller."""
    size = e.b.mul(count, e.i64(8))
    e.clear(quotient, size)
    e.clear(rest, size)
    borrow, one, zero = e.local(I64), e.i64(1), e.i64(0)
    with e.loop(e.b.mul(count, e.i64(64))) as step:
        position = e.b.sub(e.b.sub(e.b.mul(count, e.i64(64)), one), step)
        limb, bit = e.b.lshr(position, e.i64(6)), e.b.and_(position, e.i64(63))
        carry = e.local(I64)
        e.store(e.b.and_(e.b.lshr(e.load(I64, e.word(a, limb)), bit), one), carry)
        with e.loop(count) as i:
            where = e.word(rest, i)
            before = e.load(I64, where)
            e.store(e.b.or_(e.b.shl(before, one), e.load(I64, carry)), where)
            e.store(e.b.lshr(before, e.i64(63)), carry)
        e.store(zero, borrow)
        with e.loop(count) as i:  # rest < b?
            x, y, under = e.load(I64, e.word(rest, i)), e.load(I64, e.word(b, i)), e.load(I64, borrow)
            less = e.b.icmp_unsigned("<", x, y)
            same = e.b.icmp_unsigned("==", x, y)
            e.store(e.b.select(same, under, e.b.zext(less, I64)), borrow)
        too_small = e.b.and_(e.load(I64, borrow), e.b.xor(e.load(I64, carry), one))
        with e.if_then(e.b.icmp_unsigned("==", too_small, zero)):
            e.store(zero, borrow)
            with e.loop(count) as i:
                where = e.word(rest, i)
                x, y, under = e.load(I64, where), e.load(I64, e.word(b, i)), e.load(I64, borrow)
                difference = e.b.sub(x, y)
                e.store(e.b.sub(difference, under), where)
                first = e.b.zext(e.b.icmp_unsigned("<", x, y), I64)
                second = e.b.zext(e.b.icmp_unsigned("<", difference, under), I64)
                e.store(e.b.or_(first, second), borrow)
            where = e.word(quotient, limb)
            e.store(e.b.or_(e.load(I64, where), e.b.shl(one, bit)), where)
    e.b.ret_void()


def _shift_left(e: Emitter, out: Value, a: Value, by: Value, count: Value, _fill: Value) -> None:
    """out = a << by, with by < 64 count."""
    words, bits = e.b.lshr(by, e.i64(6)), e.b.and_(by, e.i64(63))

    def limb(index: Value) -> Value:
        """Return limb `index`, 0 below the lowest."""
        inside = e.b.icmp_signed(">=", index, e.i64(0))
        found = e.load(I64, e.word(a, e.b.select(inside, index, e.i64(0))))
        return e.b.select(inside, found, e.i64(0))

    with e.loop(count) as i:
        source = e.b.sub(i, words)
        high, low = limb(source), limb(e.b.sub(source, e.i64(1)))
        e.store(_funnel(e, "llvm.fshl.i64", high, low, bits), e.word(out, i))
    e.b.ret_void()


def _shift_right(e: Emitter, out: Value, a: Value, by: Value, count: Value, fill: Value) -> None:
    """out = a >> by; `fill` is the limb above the highest."""
    words, bits = e.b.lshr(by, e.i64(6)), e.b.and_(by, e.i64(63))

    def limb(index: Value) -> Value:
        """Return limb `index`, the fill above the highest."""
        inside = e.b.icmp_unsigned("<", index, count)
        return e.b.select(inside, e.load(I64, e.word(a, e.b.select(inside, index, e.i64(0)))), fill)

    with e.loop(count) as i:
        source = e.b.add(i, words)
        low, high = limb(source), limb(e.b.add(source, e.i64(1)))
        e.store(_funnel(e, "llvm.fshr.i64", high, low, bits), e.word(out, i))
    e.b.ret_void()


def _funnel(e: Emitter, name: str, high: Value, low: Value, by: Value) -> Value:
    """Return 64 bits out of two limbs (funnel shift)."""
    return e.b.call(e.module.intrinsic(name, I64, [I64, I64, I64]), [high, low, by])


# ---- bytes


def _byte(e: Emitter, data: Value, index: Value) -> Value:
    return e.b.zext(e.load(I8, e.at(data, index), align=1), I64)


def _same(e: Emitter, a: Value, b: Value, count: Value) -> None:
    """Return 1 when `count` bytes are equal, else 0."""
    differs = e.local(I64)
    e.store(e.i64(0), differs)
    with e.loop(count) as i:
        e.store(e.b.or_(e.load(I64, differs), e.b.xor(_byte(e, a, i), _byte(e, b, i))), differs)
    e.b.ret(e.b.zext(e.b.icmp_unsigned("==", e.load(I64, differs), e.i64(0)), I64))


def _append(e: Emitter, buffer: Value, position: Value, value: Value, bits: Value) -> None:
    """Write the low bits of `value` at bit `position`, over zeros."""
    with e.loop(bits) as i:
        at = e.b.add(position, i)
        bit = e.b.and_(e.b.lshr(value, e.b.sub(e.b.sub(bits, e.i64(1)), i)), e.i64(1))
        bit = e.b.shl(bit, e.b.xor(e.b.and_(at, e.i64(7)), e.i64(7)))
        where = e.at(buffer, e.b.lshr(at, e.i64(3)))
        e.store(e.b.or_(e.load(I8, where, align=1), e.b.trunc(bit, I8)), where, align=1)
    e.b.ret_void()


def _sum_words(e: Emitter, data: Value, count: Value) -> None:
    """Return the sum of 16-bit words modulo 65535; 0 only if all words are 0.

    Sums 32-bit words as the machine reads them; at the end 2^16 is 1 modulo 65535, and so is a swap of bytes.
    """
    total = e.local(I64)
    e.store(e.i64(0), total)
    with e.loop(e.b.lshr(count, e.i64(2))) as i:
        part = e.load(I32, e.at(data, e.b.shl(i, e.i64(2))), align=1)
        e.store(e.b.add(e.load(I64, total), e.b.zext(part, I64)), total)
    found = e.load(I64, total)
    for bits in (32, 16, 16, 16):
        found = e.b.add(e.b.and_(found, e.i64((1 << bits) - 1)), e.b.lshr(found, e.i64(bits)))
    swapped = e.b.or_(e.b.shl(e.b.and_(found, e.i64(0xFF)), e.i64(8)), e.b.lshr(found, e.i64(8)))
    e.store(swapped, total)
    done = e.b.and_(count, e.i64(~3))
    with e.loop(e.b.and_(count, e.i64(3))) as i:
        shift = e.b.shl(e.b.xor(e.b.and_(i, e.i64(1)), e.i64(1)), e.i64(3))
        byte = e.b.shl(_byte(e, data, e.b.add(done, i)), shift)
        e.store(e.b.add(e.load(I64, total), byte), total)
    e.b.ret(e.load(I64, total))


def _crc(first: int, polynomial: int, last: int, *, reflected: bool) -> Callable[..., None]:
    """Emit a table-driven CRC of 16 bits, or a reflected one of 32."""

    def entry(byte: int) -> int:
        crc = byte if reflected else byte << 8
        for _ in range(8):
            if reflected:
                crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
            else:
                crc = (crc << 1 ^ (polynomial if crc & 0x8000 else 0)) & 0xFFFF
        return crc

    def write(e: Emitter, data: Value, count: Value) -> None:
        kind = ir.ArrayType(I32, 256)
        table = ir.GlobalVariable(e.module.ir, kind, f"table_{polynomial}")
        table.linkage, table.global_constant = "internal", True
        table.initializer = ir.Constant(kind, [ir.Constant(I32, entry(byte)) for byte in range(256)])
        state = e.local(I64)
        e.store(e.i64(first), state)
        with e.loop(count) as i:
            crc, byte = e.load(I64, state), _byte(e, data, i)
            top = crc if reflected else e.b.lshr(crc, e.i64(8))
            index = e.b.and_(e.b.xor(top, byte), e.i64(0xFF))
            found = e.b.zext(e.load(I32, e.b.gep(table, [index], source_etype=I32), align=4), I64)
            rest = e.b.lshr(crc, e.i64(8)) if reflected else e.b.and_(e.b.shl(crc, e.i64(8)), e.i64(0xFFFF))
            e.store(e.b.xor(rest, found), state)
        e.b.ret(e.b.xor(e.load(I64, state), e.i64(last)))

    return write


def _xor_words(e: Emitter, data: Value, count: Value, word: Value) -> None:
    """Return the exclusive or of big-endian words of `word` bytes, 2 or 4."""
    state, mask = e.local(I64), e.b.sub(word, e.i64(1))
    e.store(e.i64(0), state)
    with e.loop(count) as i:
        shift = e.b.shl(e.b.xor(e.b.and_(i, mask), mask), e.i64(3))
        e.store(e.b.xor(e.load(I64, state), e.b.shl(_byte(e, data, i), shift)), state)
    e.b.ret(e.load(I64, state))


def _first_bytes(e: Emitter, data: Value, count: Value) -> None:
    """Return the first 8 bytes, or all of fewer, as a number."""
    state = e.local(I64)
    e.store(e.i64(0), state)
    fewer = e.b.icmp_unsigned("<", count, e.i64(8))
    with e.loop(e.b.select(fewer, count, e.i64(8))) as i:
        e.store(e.b.or_(e.b.shl(e.load(I64, state), e.i64(8)), _byte(e, data, i)), state)
    e.b.ret(e.load(I64, state))


_FUNCTIONS: dict[str, tuple[Value, list[Value], Callable[..., None]]] = {
    "multiply": (VOID, [POINTER, POINTER, POINTER, I64], _multiply),
    "divide": (VOID, [POINTER, POINTER, POINTER, POINTER, I64], _divide),
    "shift_left": (VOID, [POINTER, POINTER, I64, I64, I64], _shift_left),
    "shift_right": (VOID, [POINTER, POINTER, I64, I64, I64], _shift_right),
    "same": (I64, [POINTER, POINTER, I64], _same),
    "append": (VOID, [POINTER, I64, I64, I64], _append),
    "sum_words": (I64, [POINTER, I64], _sum_words),
    "crc16": (I64, [POINTER, I64], _crc(0, 0xA001, 0, reflected=True)),  # CRC-16/ARC
    "crc_ccitt": (I64, [POINTER, I64], _crc(0xFFFF, 0x1021, 0, reflected=False)),  # CRC-16/CCITT-FALSE
    "crc32": (I64, [POINTER, I64], _crc(0xFFFFFFFF, 0xEDB88320, 0xFFFFFFFF, reflected=True)),  # of IEEE 802.3
    "xor_words": (I64, [POINTER, I64, I64], _xor_words),
    "first_bytes": (I64, [POINTER, I64], _first_bytes),
}
"""Name -> the type of the result, those of the arguments, and what emits the body."""
