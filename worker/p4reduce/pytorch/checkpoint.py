"""Checkpoints of the hook's state, which another number of ranks can load.

With torch.distributed.checkpoint each rank writes its own part and reads what it needs:

    dcp.save({"model": model.state_dict(), "hook": checkpoint.part(state)}, checkpoint_id=folder)
    checkpoint.load(state, folder)

In a checkpoint that one rank writes, as Lightning's:

    saved["hook"] = checkpoint.gather(state)
    checkpoint.load_gathered(state, saved["hook"])

A residue is what a learner's compressor did not send yet. A learner is a rank, or a host whose ranks have a part of
each residue (docs/hosts.md). If the number of learners differs, learner l loads the sum of the residues of the former
learners l, l + number of learners, ..., and zeros where there are none; of hosts times a factor, since their gradients
are means. So the sum over all ranks stays the same, and nothing that was kept back is lost or sent twice. Velocities,
of a compressor with momentum, are summed in the same way and multiplied by the number of learners over the former one:
their mean stays the same. Of the same ranks and hosts each loads its own, and training goes on with the same bits;
where parameters are dense only while the buckets are the same, since numbers are rounded in blocks, and DDP makes its
buckets anew after the first backward pass. All else in the state is the same on all ranks of a shard, but for the count
of bits, of which that of the first such learner is kept.

A part consists of tensors alone, so that no code is read from a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_checkpoint

from p4reduce.paths.hosts.plan import HostPlan, elements_of
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

    def read(parts: dict[str, Any]) -> dict[str, Any]:
        load_checkpoint({key: parts}, storage_reader=reader, process_group=process_group)
        return parts

    first = read({"rank0": {"rest": empty(0)["rest"]}})["rank0"]
    plan = _plan_of(first, len({path[1] for path in paths}))
    parts = read({f"rank{rank}": empty(rank) for learner in _sources(state, plan) for rank in _senders(plan, learner)})
    _load(state, plan, lambda rank: parts[f"rank{rank}"])


def gather(state: DDPState, process_group: dist.ProcessGroup | None = None) -> list[_Part] | None:
    """Return all ranks' parts on rank 0 of the process group, and None on the others; all ranks call it."""
    parts: list[Any] | None = [None] * state.comm.world_size if state.comm.rank == 0 else None
    first = 0 if process_group is None else dist.get_global_rank(process_group, 0)
    dist.gather_object(_part(state), parts, dst=first, group=process_group)
    return parts


def load_gathered(state: DDPState, parts: list[_Part]) -> None:
    """Load what `gather` returned on rank 0. Errors as of `load`."""
    _load(state, _plan_of(parts[0], len(parts)), parts.__getitem__)


def _plan(state: DDPState) -> HostPlan:
    if state.inner is not None:
        raise ValueError("a DDPState with inner is not in these checkpoints: save each rank's state_dict() by itself")
    return state.host_plan or _learners_alone(state.comm.world_size)


def _learners_alone(ranks: int) -> HostPlan:
    return HostPlan(tuple((rank,) for rank in range(ranks)))


def _plan_of(part: _Part, saved: int) -> HostPlan:
    """Return the plan of the `saved` ranks, one of which has saved `part`."""
    hosts = _rest_of(part).get("hosts")
    return _learners_alone(saved) if hosts is None else HostPlan(tuple(map(tuple, hosts)))


def _senders(plan: HostPlan, learner: int) -> tuple[int, ...]:
    """Return the ranks that have the parts of a learner's state, by shard."""
    return plan.hosts[learner][: plan.shards]


def _sources(state: DDPState, saved: HostPlan) -> range:
    """Return the former learners whose parts this rank reads."""
    plan = _plan(state)
    return range(plan.host_of(state.comm.rank), len(saved.hosts), len(plan.hosts)) or range(1)


def _part(state: DDPState) -> _Part:
    _plan(state)  # refuses what cannot be saved
    mine = state.state_dict()
    compressor = mine["compressor"] or {}
    tensors = {kind: compressor.pop(kind, {}) for kind in _KEPT}
    if state.host_plan is not None:
        mine["hosts"] = state.host_plan.hosts
    text = json.dumps(mine, default=float).encode()
    return {**tensors, "rest": torch.frombuffer(bytearray(text), dtype=torch.uint8)}


def _load(state: DDPState, saved: HostPlan, part_of_rank: Callable[[int], _Part]) -> None:
    plan, ranks = _plan(state), state.comm.world_size
    learner, shard = plan.host_of(state.comm.rank), plan.shard_of(state.comm.rank)
    parts = [[part_of_rank(rank) for rank in _senders(saved, source)] for source in _sources(state, saved)]
    rest = _rest_of(parts[0][(shard or 0) % saved.shards])
    if (compressor := rest["compressor"]) is not None:
        scale = len(plan.hosts) / len(saved.hosts) if learner < len(saved.hosts) else 0.0
        of_residues = scale * sum(map(len, saved.hosts)) / ranks
        for kind, factor in (("residues", of_residues), ("velocities", scale)):
            whole = _merged([_joined(own, kind, rest.get("elements", {})) for own in parts], factor)
            compressor[kind] = {} if shard is None else _cut(whole, shard, plan.shards)
    state.load_state_dict(rest)


def _rest_of(part: _Part) -> dict[str, Any]:
    rest: dict[str, Any] = json.loads(bytes(part["rest"].numpy()))
    return rest


def _joined(parts: Sequence[_Part], kind: str, elements: dict[str, int]) -> dict[str, torch.Tensor]:
    """Return a learner's tensors of a kind, by parameter, of which each of its ranks has a part."""
    if len(parts) == 1:
        return dict(parts[0].get(kind, {}))
    found: dict[str, torch.Tensor] = {}
    for shard, part in enumerate(parts):
        for name, tensor in part.get(kind, {}).items():
            begin, end = elements_of(shard, len(parts), elements[name])
            found.setdefault(name, torch.zeros(elements[name]))[begin:end] = tensor
    return found


def _cut(whole: dict[str, torch.Tensor], shard: int, shards: int) -> dict[str, torch.Tensor]:
    found = {}
    for name, tensor in whole.items():
        begin, end = elements_of(shard, shards, tensor.numel())
        if begin < end:
            found[name] = tensor[begin:end]
    return found


def _merged(learners: Sequence[dict[str, torch.Tensor]], factor: float) -> dict[str, torch.Tensor]:
    """Return `factor` times the sum of the learners' tensors, by parameter."""
    found: dict[str, list[torch.Tensor]] = {}
    for own in learners:
        for name, tensor in own.items():  # a learner has no velocity of a layer that it did not use
            found.setdefault(name, []).append(tensor)
    return {name: factor * reduce(torch.add, tensors) for name, tensors in found.items()}
