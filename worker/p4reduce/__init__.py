"""p4reduce: all-reduce for training jobs, summed by a P4 switch on the way.

    import p4reduce

    with p4reduce.join() as comm:          # reads RANK, WORLD_SIZE and P4REDUCE_JOB
        total = comm.all_reduce(gradient)  # numpy or torch, float32 or int32

Importing this package does not import torch.
"""

# ruff: noqa: F405 (the compressors' names stand once, in p4reduce.compressors, and once more in __all__)

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from p4reduce.codecs import Float32, Int32, Lanes
from p4reduce.codecs.inceptionn import Inceptionn
from p4reduce.communicator import Communicator
from p4reduce.errors import (
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    CommunicatorClosedError,
    ControllerLostError,
    CorruptSumError,
    ForkedProcessError,
    FrameError,
    GeometryMismatchError,
    IntegerOverflowError,
    InvalidTensorError,
    JobResetError,
    JoinError,
    LaneOverflowError,
    NotFiniteError,
    P4ReduceError,
    PeerRefusedError,
)
from p4reduce.join import join
from p4reduce.stats import CollectiveReport, CollectiveStats
from p4reduce_contracts.jobs.lease import Lease

if TYPE_CHECKING:
    from p4reduce.compressors import *  # noqa: F403
    from p4reduce.pytorch.ddp import DDPState, ddp_hook
    from p4reduce.pytorch.ring import RingState, ring_hook

__all__ = [
    "AdaComp",
    "BlockAdaComp",
    "BlockRandomK",
    "BlockThreshold",
    "BlockTopK",
    "BlockTopKRatio",
    "CollectiveError",
    "CollectiveMismatchError",
    "CollectiveReport",
    "CollectiveStats",
    "CollectiveTimeoutError",
    "Communicator",
    "CommunicatorClosedError",
    "Compressor",
    "ControllerLostError",
    "CorruptSumError",
    "DDPState",
    "Float32",
    "ForkedProcessError",
    "Form",
    "FrameError",
    "GeometryMismatchError",
    "Inceptionn",
    "Int32",
    "IntegerOverflowError",
    "InvalidTensorError",
    "JobResetError",
    "JoinError",
    "LaneOverflowError",
    "Lanes",
    "Lease",
    "NoCompression",
    "NotFiniteError",
    "P4ReduceError",
    "PeerRefusedError",
    "Policy",
    "RingState",
    "ScaleCom",
    "SharedAdaComp",
    "ddp_hook",
    "join",
    "ring_hook",
]


_NEED_TORCH = set(__all__) - set(globals())
_HOOKS = {
    "DDPState": "p4reduce.pytorch.ddp",
    "ddp_hook": "p4reduce.pytorch.ddp",
    "RingState": "p4reduce.pytorch.ring",
    "ring_hook": "p4reduce.pytorch.ring",
}


def __getattr__(name: str) -> Any:
    """The names that need torch are imported when they are first used."""
    if name == "compressors":
        return import_module("p4reduce.compressors")
    if name in _NEED_TORCH:
        return getattr(import_module(_HOOKS.get(name, "p4reduce.compressors")), name)
    raise AttributeError(f"module 'p4reduce' has no attribute {name!r}")
