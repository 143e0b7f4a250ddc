"""P4Runtime client: names instead of ids, integers instead of byte strings."""

from __future__ import annotations

from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.p4runtime.entries import (
    CounterEntry,
    DigestConfig,
    MeterConfig,
    MeterEntry,
    MulticastGroup,
    TableEntry,
)
from p4reduce_runtime.p4runtime.errors import (
    Failure,
    NotPrimaryError,
    P4RuntimeError,
    PipelineError,
    ReadError,
    SchemaError,
    SwitchUnreachableError,
    WriteError,
)
from p4reduce_runtime.p4runtime.schema import Schema

__all__ = [
    "Client",
    "CounterEntry",
    "DigestConfig",
    "Failure",
    "MeterConfig",
    "MeterEntry",
    "MulticastGroup",
    "NotPrimaryError",
    "P4RuntimeError",
    "PipelineError",
    "ReadError",
    "Schema",
    "SchemaError",
    "SwitchUnreachableError",
    "TableEntry",
    "WriteError",
]
