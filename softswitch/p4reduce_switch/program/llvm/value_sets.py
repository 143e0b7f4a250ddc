"""Parser value sets: their members in memory, and the comparison of keys with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from p4reduce_switch.program.ir import program
from p4reduce_switch.program.llvm.arrays import Words, address
from p4reduce_switch.program.llvm.emitter import I64, Emitter, Value
from p4reduce_switch.program.llvm.memory import StateMap, ValueSetWord
from p4reduce_switch.program.llvm.numbers import Number, size_for
from p4reduce_switch.program.llvm.world import World
from p4reduce_switch.program.state.value_sets import KeyTest, ValueSet

WORD = (1 << 64) - 1


class CompiledValueSet(ValueSet):
    """A value set whose members are in memory too."""

    def __init__(self, declared: program.ValueSet, state: Words, map_: StateMap) -> None:
        super().__init__(declared.name, declared.widths)
        self._state, self._base = state, map_.value_sets[declared]
        self._memory: Words = np.zeros(1, np.int64)

    def set_members(self, members: Sequence[tuple[KeyTest, ...]]) -> None:
        """Set all members at once. ValueError for a member that does not fit the keys."""
        super().set_members(members)
        words = [
            part >> 64 * word & WORD
            for member in members
            for test, width in zip(member, self.widths, strict=True)
            for part in test
            for word in range(size_for(width) // 64)
        ]
        self._memory = np.array([*words, 0], np.uint64).view(np.int64)
        self._state[self._base + ValueSetWord.MEMBERS] = address(self._memory)
        self._state[self._base + ValueSetWord.COUNT] = len(members)


def write_holds(e: Emitter, world: World, declared: program.ValueSet, keys: Sequence[Number]) -> Value:
    """Whether any member of a value set matches these keys, each as wide as `size_for` says."""
    n, base = world.n, world.map.value_sets[declared]
    members = world.pointer(base + ValueSetWord.MEMBERS)
    sizes = [size_for(width) // 64 for width in declared.widths]
    found = e.local(I64)
    e.store(e.i64(0), found)
    with e.loop(world.word(base + ValueSetWord.COUNT)) as index:
        start = e.word(members, e.b.mul(index, e.i64(4 * sum(sizes))))
        matches, offset = e.bit(True), 0
        for key, words in zip(keys, sizes, strict=True):
            mask, value, low, high = (
                n.whole([e.load(I64, e.word(start, offset + part * words + word)) for word in range(words)])
                for part in range(4)
            )
            outside = e.b.or_(n.less(key, low, False), n.less(high, key, False))
            matches = e.b.and_(matches, e.b.and_(n.equal(n.both(key, mask), value), e.b.not_(outside)))
            offset += 4 * words
        with e.when(matches):
            e.store(e.i64(1), found)
    return e.b.not_(n.is_zero(e.load(I64, found)))
