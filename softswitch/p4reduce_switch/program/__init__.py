"""Executes P4 programs for v1model: the JSON that p4c-bm2-ss writes, loaded into an executor.

`load(config, executor="python")` gives an `Executor`; `Program` is the Python one.
"""

from p4reduce_switch.program.errors import (
    EntryExists,
    EntryMissing,
    ExecutionError,
    InvalidProgram,
    MixedUse,
    ProfileError,
    ProfileFull,
    ProgramError,
    TableError,
    TableFull,
    TableIsConst,
    TargetExists,
    TargetInUse,
    TargetMissing,
    UnknownExecutor,
    UnsupportedConstruct,
)
from p4reduce_switch.program.executor import (
    ActionProfileState,
    CounterState,
    DigestHandler,
    Executor,
    MeterState,
    RegisterState,
    ReplicationState,
    TableState,
    ValueSetState,
)
from p4reduce_switch.program.python import Program
from p4reduce_switch.program.registry import DEFAULT_EXECUTOR, check_executor, executors, load
from p4reduce_switch.program.state.profiles import (
    ActionSet,
    Group,
    GroupRef,
    Member,
    MemberRef,
    Share,
    Target,
    WeightedAction,
)
from p4reduce_switch.program.state.replication import CloneSession, Replica, Replication
from p4reduce_switch.program.state.stateful import Counter, Meter, MeterConfig, Register
from p4reduce_switch.program.state.tables import Entry, KeyField, Table
from p4reduce_switch.program.state.value_sets import KeyTest

__all__ = [
    "DEFAULT_EXECUTOR",
    "ActionProfileState",
    "ActionSet",
    "CloneSession",
    "Counter",
    "CounterState",
    "DigestHandler",
    "Entry",
    "EntryExists",
    "EntryMissing",
    "ExecutionError",
    "Executor",
    "Group",
    "GroupRef",
    "InvalidProgram",
    "KeyField",
    "KeyTest",
    "Member",
    "MemberRef",
    "Meter",
    "MeterConfig",
    "MeterState",
    "MixedUse",
    "ProfileError",
    "ProfileFull",
    "Program",
    "ProgramError",
    "Register",
    "RegisterState",
    "Replica",
    "Replication",
    "ReplicationState",
    "Share",
    "Table",
    "TableError",
    "TableFull",
    "TableIsConst",
    "TableState",
    "Target",
    "TargetExists",
    "TargetInUse",
    "TargetMissing",
    "UnknownExecutor",
    "UnsupportedConstruct",
    "ValueSetState",
    "WeightedAction",
    "check_executor",
    "executors",
    "load",
]
