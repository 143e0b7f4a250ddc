"""P4Runtime client: names instead of ids, integers instead of byte strings."""

from __future__ import annotations

from p4reduce_contracts.p4runtime.entries import (
    ActionProfileGroup,
    ActionProfileMember,
    CloneSession,
    CounterData,
    CounterEntry,
    DigestConfig,
    DirectCounterEntry,
    DirectMeterEntry,
    MeterConfig,
    MeterEntry,
    MulticastGroup,
    RegisterEntry,
    TableEntry,
    ValueSetEntry,
    WeightedAction,
)
from p4reduce_contracts.p4runtime.errors import (
    Failure,
    NotPrimaryError,
    P4RuntimeError,
    PipelineError,
    ReadError,
    SchemaError,
    SwitchUnreachableError,
    WriteError,
)
from p4reduce_contracts.p4runtime.schema import Schema
from p4reduce_controller.p4rt.client import Client

__all__ = [
    "ActionProfileGroup",
    "ActionProfileMember",
    "Client",
    "CloneSession",
    "CounterData",
    "CounterEntry",
    "DigestConfig",
    "DirectCounterEntry",
    "DirectMeterEntry",
    "Failure",
    "MeterConfig",
    "MeterEntry",
    "MulticastGroup",
    "NotPrimaryError",
    "P4RuntimeError",
    "PipelineError",
    "ReadError",
    "RegisterEntry",
    "Schema",
    "SchemaError",
    "SwitchUnreachableError",
    "TableEntry",
    "ValueSetEntry",
    "WeightedAction",
    "WriteError",
]
