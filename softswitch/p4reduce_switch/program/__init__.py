"""Executes P4 programs for v1model: `Program` takes the JSON that p4c-bm2-ss writes."""

from p4reduce_switch.program.errors import (
    EntryExistsError,
    EntryMissingError,
    ExecutionError,
    InvalidProgramError,
    MixedUseError,
    ProfileError,
    ProfileFullError,
    ProgramError,
    TableError,
    TableFullError,
    TargetExistsError,
    TargetInUseError,
    TargetMissingError,
    UnsupportedConstructError,
)
from p4reduce_switch.program.ir.program import KeyTest, TargetOptions
from p4reduce_switch.program.load import DEFAULT_TARGET
from p4reduce_switch.program.program import Compiled, Config, Program, compile_program
from p4reduce_switch.program.queues import DEFAULT_QUEUES, MAX_PRIORITIES, EgressQueues, QueueSetting, QueueSettings
from p4reduce_switch.program.state.profiles import (
    ActionProfile,
    ActionSet,
    Call,
    Group,
    GroupRef,
    Member,
    MemberRef,
    Share,
    Target,
    WeightedAction,
)
from p4reduce_switch.program.state.replication import CloneSession, Replica, Replication
from p4reduce_switch.program.state.stateful import Counter, Meter, MeterConfig, Register, ValueSet
from p4reduce_switch.program.state.tables import Entry, EntryKey, Metadata, Table
from p4reduce_switch.program.trace import Event, PacketTrace, TraceHandler
from p4reduce_switch.program.traffic import DigestHandler

__all__ = [
    "DEFAULT_QUEUES",
    "DEFAULT_TARGET",
    "ActionProfile",
    "ActionSet",
    "Call",
    "CloneSession",
    "Compiled",
    "Counter",
    "Config",
    "DigestHandler",
    "EgressQueues",
    "Entry",
    "EntryExistsError",
    "EntryKey",
    "EntryMissingError",
    "Event",
    "ExecutionError",
    "Group",
    "GroupRef",
    "InvalidProgramError",
    "KeyTest",
    "MAX_PRIORITIES",
    "Member",
    "MemberRef",
    "Metadata",
    "Meter",
    "MeterConfig",
    "MixedUseError",
    "PacketTrace",
    "ProfileError",
    "ProfileFullError",
    "Program",
    "ProgramError",
    "QueueSetting",
    "QueueSettings",
    "Register",
    "Replica",
    "Replication",
    "Share",
    "Table",
    "TableError",
    "TableFullError",
    "Target",
    "TargetExistsError",
    "TargetInUseError",
    "TargetMissingError",
    "TargetOptions",
    "TraceHandler",
    "UnsupportedConstructError",
    "ValueSet",
    "WeightedAction",
    "compile_program",
]
