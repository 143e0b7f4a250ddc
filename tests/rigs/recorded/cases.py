"""The cases of the project's program that BMv2 has answered: `p4reduce_*` of the switch's recordings."""

from __future__ import annotations

import functools

from conformance.case import Case
from rigs.recorded import protocol_rows, random_traffic, table_rows


@functools.cache
def cases() -> dict[str, Case]:
    return {case.name: case for module in (protocol_rows, random_traffic, table_rows) for case in module.cases()}
