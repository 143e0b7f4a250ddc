"""p4reduce: all-reduce for training jobs, summed by a P4 switch on the way.

    import p4reduce

    with p4reduce.join() as comm:          # reads RANK, WORLD_SIZE and P4REDUCE_JOB
        total = comm.all_reduce(gradient)  # numpy or torch, float32 or int32

The other exceptions are in `p4reduce.errors`, all compressors in `p4reduce.compressors`, and tensors with codecs of
their own in `p4reduce.codecs`. Importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p4reduce.communicator import Communicator
    from p4reduce.compressors import AdaComp, NoCompression, OmniReduce, Quantize, ScaleCom
    from p4reduce.errors import CollectiveError, P4ReduceError
    from p4reduce.membership.join import join
    from p4reduce.pytorch.ddp import DDPState, ddp_hook
    from p4reduce.pytorch.recommend import recommend

    __version__: str

__all__ = [
    "AdaComp",
    "CollectiveError",
    "Communicator",
    "DDPState",
    "NoCompression",
    "OmniReduce",
    "Quantize",
    "P4ReduceError",
    "ScaleCom",
    "__version__",
    "ddp_hook",
    "join",
    "recommend",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import when it is first used: `import torch` may import this package (pytorch/autoload.py)."""
        if name in ("compressors", "errors"):
            return import_module(f"p4reduce.{name}")
        if name == "__version__":
            return import_module("importlib.metadata").version("p4reduce")
        if name in __all__:
            modules = {
                "CollectiveError": "errors",
                "Communicator": "communicator",
                "DDPState": "pytorch.ddp",
                "P4ReduceError": "errors",
                "ddp_hook": "pytorch.ddp",
                "join": "membership.join",
                "recommend": "pytorch.recommend",
            }
            return getattr(import_module(f"p4reduce.{modules.get(name, 'compressors')}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
