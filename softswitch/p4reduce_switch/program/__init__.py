"""Executes P4 programs for v1model: the JSON that p4c-bm2-ss writes, compiled to Python when it is loaded."""

from .errors import (
    EntryExists,
    EntryMissing,
    ExecutionError,
    InvalidProgram,
    ProgramError,
    TableError,
    TableFull,
    TableIsConst,
    UnsupportedConstruct,
)
from .executor import DigestHandler, Executor
from .pipeline import Program
from .replication import CloneSession, Replica, Replication
from .stateful import Counter, Meter, MeterConfig, Register
from .tables import Entry, KeyField, Table

__all__ = [
    "CloneSession",
    "Counter",
    "DigestHandler",
    "Entry",
    "EntryExists",
    "EntryMissing",
    "ExecutionError",
    "Executor",
    "InvalidProgram",
    "KeyField",
    "Meter",
    "MeterConfig",
    "Program",
    "ProgramError",
    "Register",
    "Replica",
    "Replication",
    "Table",
    "TableError",
    "TableFull",
    "TableIsConst",
    "UnsupportedConstruct",
]
