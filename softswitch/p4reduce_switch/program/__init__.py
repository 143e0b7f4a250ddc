"""Executes P4 programs for v1model: `Program` takes the JSON that p4c-bm2-ss writes."""

from p4reduce_switch.program.errors import ExecutionError, InvalidProgramError, ProgramError, UnsupportedConstructError
from p4reduce_switch.program.ir.program import TargetOptions
from p4reduce_switch.program.program import Compiled, Config, Program, compile_program
from p4reduce_switch.program.queues import QueueSetting, QueueSettings
from p4reduce_switch.program.state.replication import Replica
from p4reduce_switch.program.trace import PacketTrace

__all__ = [
    "Compiled",
    "Config",
    "ExecutionError",
    "InvalidProgramError",
    "PacketTrace",
    "Program",
    "ProgramError",
    "QueueSetting",
    "QueueSettings",
    "Replica",
    "TargetOptions",
    "UnsupportedConstructError",
    "compile_program",
]
