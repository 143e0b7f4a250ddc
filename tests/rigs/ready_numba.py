"""Imports what numba imports when it first compiles."""

from __future__ import annotations

import numba

numba.njit("int64(int64)")(lambda number: number + 1)
