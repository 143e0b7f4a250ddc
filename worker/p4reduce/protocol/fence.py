"""Order what this process reads and writes in memory that other processes share: for kernels alone."""

from __future__ import annotations

from typing import Any

import numba
from numba.extending import intrinsic

_types: Any = numba.types


def _fence(_typing: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return _types.void(), generate


fence: Any = intrinsic(_fence)
"""Orders all reads and writes before this one and all after it, also a write before and a read after."""
