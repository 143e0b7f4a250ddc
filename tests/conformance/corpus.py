"""Every case there is."""

from __future__ import annotations

import functools

from conformance import (
    protocol_rows,
    random_traffic,
    rows_copies,
    rows_groups,
    rows_headers,
    rows_profiles,
    rows_tables,
    rows_values,
    table_rows,
)
from conformance.case import Case


def small_programs() -> dict[str, Case]:
    """Cases of the programs in programs/, by name."""
    modules = (rows_tables, rows_headers, rows_copies, rows_values, rows_groups, rows_profiles)
    return {case.name: case for module in modules for case in module.cases()}


def p4reduce_program() -> dict[str, Case]:
    """Cases of the project's own program, by name."""
    return {case.name: case for module in (protocol_rows, random_traffic, table_rows) for case in module.cases()}


@functools.cache
def all_cases() -> dict[str, Case]:
    """Every case, by name."""
    return small_programs() | p4reduce_program()
