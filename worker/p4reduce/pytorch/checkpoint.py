"""Checkpoints of the hook's state, which another number of ranks can load.

With torch.distributed.checkpoint each rank writes its own part and reads what it needs:

    dcp.save({"model": model.state_dict(), "hook": checkpoint.part(state)}, checkpoint_id=folder)
    checkpoint.load(state, folder)

In a checkpoint that one rank writes, as Lightning's:

    saved["hook"] = checkpoint.gather(state)
    checkpoint.load_gathered(state, saved["hook"])

A residue is what a rank's compressor did not send yet. If the number of ranks differs, rank r
loads the sum of the residues of the former ranks r, r + world_size, ..., and zeros where there are none: the sum of all
residues stays the same, and nothing that was kept back is lost or sent twice. Velocities, of a compressor with
momentum, are summed in the same way and multiplied by the number of ranks over the former one: their mean stays the
same. Of the same number of ranks each loads its own, and training goes on with the same bits; where
parameters are dense only while the buckets are the same, since numbers are rounded in blocks, and DDP makes its buckets
anew after the first backward pass. All else in the state is the same on all ranks, but for the count of bits,
of which the first rank's is kept.

A part consists of tensors alone, so that no code is read from a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_checkpoint

from p4reduce.pytorch.ddp import DDPState

__all__ = ["gather", "load", "load_gathered", "part"]

_Part = dict[str, Any]
"""{"residues" and "velocities": {parameter: float32 [elements]}, "rest": uint8 [bytes], JSON}."""
_KEPT = ("residues", "velocities")


def part(state: DDPState) -> dict[str, _Part]:
    """Return this rank's part, for `torch.distributed.checkpoint.save`; copies of tensors."""
    return {f"rank{state.comm.rank}": _part(state)}


def load(state: DDPState, folder: Any, *, key: str = "hook", process_group: dist.ProcessGroup | None = None) -> None:
    """Load what `torch.distributed.checkpoint.save` wrote of `part` under `key` into `folder`; all ranks call it.

    `process_group`: as of `torch.distributed.checkpoint.load`. Raises ValueError if there is nothing under `key`, or it
    is another compressor's.
    """
    reader = FileSystemReader(folder)
    metadata = reader.read_metadata()
    paths = {
        path: kind.size
        for name, path in (metadata.planner_data or {}).items()
        if path[0] == key and isinstance(kind := metadata.state_dict_metadata[name], TensorStorageMetadata)
    }
    if not paths:
        raise ValueError(f"{folder} has nothing under {key!r}: save checkpoint.part(state) under that key")

    def empty(rank: int) -> _Part:
        sizes = {path[2:]: size for path, size in paths.items() if path[1] == f"rank{rank}"}
        rest = torch.empty(sizes.pop(("rest",)), dtype=torch.uint8)
        tensors = {
            kind: {path[1]: torch.empty(size) for path, size in sizes.items() if path[0] == kind} for kind in _KEPT
        }
        return {**tensors, "rest": rest}

    saved = len({path[1] for path in paths})
    parts = {f"rank{rank}": empty(rank) for rank in _sources(state, saved)}
    load_checkpoint({key: parts}, storage_reader=reader, process_group=process_group)
    _load(state, saved, lambda rank: parts[f"rank{rank}"])


def gather(state: DDPState, process_group: dist.ProcessGroup | None = None) -> list[_Part] | None:
    """Return all ranks' parts on rank 0 of the process group, and None on the others; all ranks call it."""
    parts: list[Any] | None = [None] * state.comm.world_size if state.comm.rank == 0 else None
    first = 0 if process_group is None else dist.get_global_rank(process_group, 0)
    dist.gather_object(_part(state), parts, dst=first, group=process_group)
    return parts


def load_gathered(state: DDPState, parts: list[_Part]) -> None:
    """Load what `gather` returned on rank 0. Errors as of `load`."""
    _load(state, len(parts), parts.__getitem__)


def _sources(state: DDPState, saved: int) -> range:
    """Return the former ranks, of `saved`, whose parts this rank reads."""
    return range(state.comm.rank, saved, state.comm.world_size) or range(1)


def _part(state: DDPState) -> _Part:
    mine = state.state_dict()
    compressor = mine["compressor"] or {}
    tensors = {kind: compressor.pop(kind, {}) for kind in _KEPT}
    text = json.dumps(mine, default=float).encode()
    return {**tensors, "rest": torch.frombuffer(bytearray(text), dtype=torch.uint8)}


def _load(state: DDPState, saved: int, part_of: Callable[[int], _Part]) -> None:
    rank, ranks = state.comm.rank, state.comm.world_size
    parts = [part_of(source) for source in _sources(state, saved)]
    rest = json.loads(bytes(parts[0]["rest"].numpy()))
    if (compressor := rest["compressor"]) is not None:
        compressor["residues"] = _merged(parts, "residues", 1.0 if rank < saved else 0.0)
        compressor["velocities"] = _merged(parts, "velocities", ranks / saved if rank < saved else 0.0)
    state.load_state_dict(rest)


def _merged(parts: list[_Part], kind: str, factor: float) -> dict[str, torch.Tensor]:
    """Return `factor` times the sum of the parts' tensors of a kind, by parameter."""
    found: dict[str, list[torch.Tensor]] = {}
    for part in parts:
        for name, tensor in part.get(kind, {}).items():  # a rank has no velocity of a layer that it did not use
            found.setdefault(name, []).append(tensor)
    return {name: factor * reduce(torch.add, tensors) for name, tensors in found.items()}
