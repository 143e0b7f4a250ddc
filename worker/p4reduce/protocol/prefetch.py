"""Have memory fetched before it is used: for kernels alone."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic, register_jitable

_LINE_BYTES = 64
_types: Any = numba.types
_INT, _OCTET = ir.IntType(32), ir.IntType(8).as_pointer()


def _prefetch_line(_typing: Any, address: Any) -> Any:
    """Fetch the cache line at an address, which need not be one of the process's."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        prefetch = builder.module.declare_intrinsic(
            "llvm.prefetch", (_OCTET,), ir.FunctionType(ir.VoidType(), [_OCTET, _INT, _INT, _INT])
        )
        to_read, stay, data = _INT(0), _INT(3), _INT(1)
        builder.call(prefetch, [builder.inttoptr(arguments[0], _OCTET), to_read, stay, data])
        return context.get_dummy_value()

    return _types.void(_types.int64), generate


_line: Any = intrinsic(_prefetch_line)


@register_jitable
def prefetch(array: Any, start: int, count: int) -> None:
    """Fetch `count` items of 4 bytes from `start` on; those beyond the array do no harm."""
    address = np.int64(array.ctypes.data) + 4 * start
    for offset in range(0, 4 * count, _LINE_BYTES):
        _line(address + offset)
