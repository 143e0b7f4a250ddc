"""Limits of a program: setting a pipeline must not exhaust the switch's memory or time."""

from __future__ import annotations

MAX_JSON_BYTES = 64 << 20
MAX_NESTING = 5_000
"""Levels of an expression: a back-end may need a stack frame for some of them."""
MAX_BITS = 1 << 16
"""Bits of a field, a register cell or a constant."""
MAX_HEADER_BITS = 1 << 19
"""Bits of a header: no frame is longer."""
MAX_SLOTS = 1 << 16
"""Fields, validities and stack counters of all headers together: every packet has all of them."""
MAX_STATE_BYTES = 256 << 20
"""Registers, counters and meters together, a cell counted as machine code stores it."""
MAX_NODES = 1 << 14
"""Nodes of a control, states of a parser, instructions of an action."""
MAX_ID = (1 << 32) - 1
MAX_TABLE_SIZE = (1 << 32) - 1
MAX_PRIORITY = (1 << 31) - 1
