"""DistributedDataParallel on the switch: one line to opt in.

    model = DistributedDataParallel(model)
    model.register_comm_hook(p4reduce.DDPState(p4reduce.join()), p4reduce.ddp_hook)

where the process group has the backend "p4reduce", without a job made by hand:

    model.register_comm_hook(p4reduce.DDPState(dist.group.WORLD), p4reduce.ddp_hook)

and with compression, naming parameters as the model does:

    state = p4reduce.DDPState(p4reduce.join(), p4reduce.AdaComp(), module=model)

or the compressor that suits the optimizer:

    state = p4reduce.DDPState(p4reduce.join(), "auto", module=model, optimizer=optimizer)

With a GradScaler, or wherever a NaN or an infinity is no error but a step to skip:

    state = p4reduce.DDPState(p4reduce.join(), on_nonfinite="skip")

With several GPUs a host, NCCL inside it and the switch between hosts (docs/gpus.md):

    state = p4reduce.DDPState(mesh["hosts"].get_group(), inner=mesh["gpus"].get_group(), module=model)

The process group that DistributedDataParallel was given still sets up the model; the gradients no longer
pass through it.
"""

# No `from __future__ import annotations` here: DistributedDataParallel compares the hook's annotations as
# objects.

import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.distributed as dist
from torch._C._profiler import _RecordFunctionFast
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # stubs leave it out

from p4reduce import collectives
from p4reduce.codecs import Floats
from p4reduce.codecs.arrays import FLOAT_NAMES, float_dtypes
from p4reduce.collective_queue import CollectiveFuture, CollectiveQueue
from p4reduce.communicator import Communicator
from p4reduce.compressors import Compressor
from p4reduce.compressors.all_reduce import Begun, BucketReport, begin
from p4reduce.compressors.host_group import parts_of
from p4reduce.compressors.step import is_finite
from p4reduce.errors import (
    CollectiveError,
    CommunicatorClosedError,
    InvalidTensorError,
    NotFiniteError,
    PeerRefusedError,
)
from p4reduce.pytorch.inner import InnerRanks, Passed, Shards
from p4reduce.pytorch.recommend import FirstMoment, recommend, warn_of_first_moment
from p4reduce.pytorch.refused_sums import all_may_go_on
from p4reduce.pytorch.staging import OnHost, stage
from p4reduce_contracts.ranks import name_ranks

__all__ = ["DDPState", "ddp_hook"]

_log = logging.getLogger(__name__)

_ON_NONFINITE = ("raise", "skip")
FINISHED = "this DDPState is finished: fix that, wrap the module anew and join again"
REFUSED = (
    "this DDPState is finished, its communicator is not: fix that, wrap the module anew, and give the communicator to "
    "a new DDPState"
)
_Prepared = Begun | BaseException | None
"""A compressed bucket, the error of one that failed, or None for a bucket that is not compressed ahead."""
_READY = 2
"""Buckets that may be compressed and not summed: one is sent, the next waits for it. More would only take memory."""
COPIED = (
    "this DDPState is a copy, without a connection, and torch has not registered it as a hook: to train the copied "
    "model, wrap its module anew, model.module, and register a new DDPState"
)
_EXIT_S = 5.0
"""Seconds that the end of the interpreter waits for the background threads."""


@dataclass(frozen=True)
class _Bucket:
    """A bucket of a backward pass."""

    index: int
    last: bool
    given: torch.Tensor
    """The bucket, or this rank's shard of it, in the memory of the model's device."""
    buffer: torch.Tensor
    """The same in the host's memory."""
    parts: dict[str, torch.Tensor]
    """The gradients in `buffer`, by parameter."""
    staged: OnHost
    future: torch.futures.Future[torch.Tensor]
    summed: Any = None
    """The work of a sum by the process group, where the bucket is sparse."""
    shards: Shards | None = None
    """The bucket's shards, where the host's ranks have summed it."""
    begins: Mapping[str, int] | None = None
    """The index of the first element of each of `parts` in its parameter, where they are parts of parameters."""


class _CopiedError(CommunicatorClosedError):
    """The error of a copy."""


class DDPState:
    """What the hook keeps between buckets: communicator, compressor, names, and the thread that compresses.

    Buckets are summed in their order, by the communicator's queue, so that every rank calls the same collectives in
    the same order, during the rest of the backward pass; while a bucket is sent, the next is compressed. Until
    `close()` no other collective may be called on the communicator while a backward pass runs. `close()` waits for the
    buckets and leaves the communicator open; at the end of the interpreter both are closed.

    All ranks make it at the same time: it compares their options in a collective.

    The first error ends the state on every rank. When one rank's gradients cannot be summed, all ranks raise in the
    same bucket (InvalidTensorError there, PeerRefusedError elsewhere), and the communicator stays usable. After any
    other error the state leaves the job at once, so that the other ranks get JobResetError instead of waiting for this
    one.

    Sparse gradients, as of `nn.Embedding(sparse=True)`, are averaged by the process group, as by torch's own hook.

    A copy, of copy.deepcopy or pickle, has the compressor's state and no connection: it sums nothing.
    """

    def __init__(
        self,
        comm: Communicator | dist.ProcessGroup,
        compressor: Compressor | Literal["auto"] | None = None,
        *,
        module: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        on_nonfinite: Literal["raise", "skip"] = "raise",
        inner: dist.ProcessGroup | None = None,
    ) -> None:
        """`comm` may be a process group of the backend p4reduce: the hook then uses its communicator, and buckets are
        summed after the group's collectives that were called before.

        `compressor` works in float32, also on gradients of float16 and bfloat16, whose means it rounds to their type;
        residues are float32. "auto" takes what `recommend` returns for `module` and `optimizer`.

        `optimizer`: a compressor with momentum takes its first moment over: beta1 is 0 until `close()`, or the first
        error; `optimizer.state_dict()` has the old one.

        `module` gives the parameters their names, in errors and in the compressor's state; without it
        they are called `parameter0`, `parameter1`, ... in the order in which they first come by (the same
        on all ranks, and the same in another run only while the buckets are).

        `on_nonfinite`: what happens when a bucket of any rank holds a NaN or an infinity. "raise" is an error on all
        ranks. With "skip" the gradients of that bucket and the later ones are NaN on all ranks, so that a GradScaler,
        or a check of your own for finite gradients, skips the step on all of them; the compressor's state is what it
        was before the step. Without such a check the weights become NaN.

        `inner`: the process group of this host's ranks, of any backend. It sums buckets over the host first; `comm` has
        one rank of each host, and sums the shard of this rank. With "skip" all of the step's gradients are then NaN.

        Raises ValueError on every rank when an option is not the same on all. Raises ValueError when
        the module's process group and the communicator have different sizes, when the compressor's policy does not fit
        the module; LaneOverflowError when the compressor's settings do not fit the job; and what a collective raises.
        """
        if on_nonfinite not in _ON_NONFINITE:
            raise ValueError(f'on_nonfinite is {on_nonfinite!r}; give "raise" or "skip"')
        group = comm if isinstance(comm, dist.ProcessGroup) and inner is None else None
        if isinstance(comm, dist.ProcessGroup):
            comm = _communicator_of(comm)
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            ranks, summed = dist.get_world_size(module.process_group), comm.world_size * (inner.size() if inner else 1)
            if ranks != summed:
                of_host = f" times the {inner.size()} of inner" if inner else ""
                raise ValueError(
                    f"the job has {comm.world_size} ranks{of_host}, the model's process group {ranks}: make them equal"
                )
            group = group or module.process_group
            module = module.module
        if compressor == "auto":
            if module is None or optimizer is None:
                raise ValueError("a compressor that suits needs both: give DDPState module=model, optimizer=optimizer")
            compressor, why = recommend(module, optimizer)
            _log.info("%s", why)
        self.comm = comm
        self._group = group
        """The process group that sums sparse buckets; None: that of all ranks."""
        self.compressor = compressor
        self.error: BaseException | None = None
        """The error of the first failed bucket; every later one raises it again."""
        self.on_nonfinite = on_nonfinite
        self.skipped_steps = 0
        """Backward passes whose gradients are NaN since some rank's were not finite; equal on all ranks."""
        self._skipping = False
        """Whether the rest of this backward pass is skipped; used only by the thread that sends buckets."""
        self._before: dict[str, Any] | None = None
        """The compressor's state before this backward pass, where the pass may still have to be undone."""
        self._names: dict[torch.Tensor, str] = {}
        if module is not None:
            self._names = {parameter: name for name, parameter in module.named_parameters()}
            if compressor is not None:
                compressor.bind(module)
        elif compressor is not None and compressor.policy.names:
            raise ValueError("the compressor's policy names parameters: give DDPState module=model")
        if compressor is not None:
            compressor.check(comm.lease)
        _compare(comm, on_nonfinite)
        self.inner = None if inner is None else InnerRanks(inner)
        """The ranks of this host that sum first, by a process group of their own."""
        self._ranks = comm.world_size * (1 if inner is None else inner.size())
        # now, as later on gradients are compressed while another collective has its turn
        hosts = None if compressor is None or self.inner else comm.find_hosts()
        self.host_plan = None if hosts is None else hosts.plan
        """The ranks of each host, where they compress together; None: each rank compresses for itself."""
        self._scattered: list[_Bucket] = []
        """The buckets of this backward pass, with `inner`."""
        self._first_moment: FirstMoment | None = None
        if compressor is not None and optimizer is not None and compressor.momentum:
            self._first_moment = FirstMoment(optimizer)
        elif compressor is not None:
            warn_of_first_moment(compressor)
        self._loaded: dict[str, int] = {}
        """The elements of each parameter, by a checkpoint; its parts on the ranks of a host do not show them."""
        self.reports: list[BucketReport] = []
        """Reports of the buckets of the last backward pass with a compressor: wire forms and bytes."""
        self._compressing = CollectiveQueue("p4reduce-compress")
        """The queue on whose thread the next bucket is compressed while one is summed."""
        self._places = threading.Semaphore(_READY)
        self._pending: CollectiveFuture[None] | None = None
        """The future of the last bucket handed in."""
        self._failing = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        _states.add(self)

    def reduce(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Start the all-reduce of a bucket in the background; the future gives its mean.

        With the last bucket of a backward pass it waits for all of them, so that what went wrong with any
        is raised in backward() as what it is: DistributedDataParallel would make a RuntimeError of an error
        inside a future. The only bucket of a pass is summed on this thread: nothing else could go on meanwhile.
        """
        if isinstance(self.error, _CopiedError):
            raise self.error
        self.comm.check_process()  # a forked child has no background threads
        if self._closed:
            raise CommunicatorClosedError("this DDPState was closed: register a new one with a model wrapped anew")
        index, last = bucket.index(), bucket.is_last()
        if self.error is not None and (self.inner is None or index == 0):
            raise self.error  # within a pass the ranks of the host go on until they have agreed (`_gather`)
        if index == 0:
            self.reports, self._scattered = [], []
            if self._first_moment is not None:
                self._first_moment.take()
        given = bucket.buffer()
        names = [self._names.setdefault(each, f"parameter{len(self._names)}") for each in bucket.parameters()]
        sparse = given.layout is not torch.strided
        try:
            if sparse:
                staged, parts = stage(given.device, [], []), dict.fromkeys(names, given)
                work = dist.all_reduce(given, group=self._group_of_sparse(), async_op=True)
                begun = _Bucket(index, last, given, given, parts, staged, staged.future(), work)
            else:
                gradients, shards, begins = dict(zip(names, bucket.gradients(), strict=True)), None, None
                if self.inner is not None:
                    spans = {name: _span(given, gradient) for name, gradient in gradients.items()}
                    shards = self.inner.scatter(given, spans, by_parameter=self.compressor is not None)
                    given = shards.mine
                staged = stage(given.device, [given], [given])
                (buffer,) = staged.writes
                if shards is None:
                    parts = {name: _same_part(buffer, given, gradient) for name, gradient in gradients.items()}
                else:
                    parts, begins = parts_of(shards.pieces, buffer, gradients)
                begun = _Bucket(index, last, given, buffer, parts, staged, staged.future(), None, shards, begins)
        except BaseException as error:
            self._fail(error)
            raise
        self._scattered += [begun] if self.inner else []
        alone = index == 0 and last
        ahead = None
        if self.compressor is not None and not alone:
            ahead = self._compressing.submit(lambda: self._prepare(begun, ahead=True))
        self._pending = self.comm.queue.submit(lambda: self._run(begun, ahead), inline=alone)
        if last:
            if self.inner is None:
                self.wait()
            else:
                self._gather(self.inner, bucket.buffer().device)
        return begun.future

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint of this rank needs; `p4reduce.pytorch.checkpoint` loads it on other ranks too."""
        return {
            "skipped_steps": self.skipped_steps,
            "compressor": None if self.compressor is None else self.compressor.state_dict(),
            "elements": self._loaded | {name: parameter.numel() for parameter, name in self._names.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned. All ranks must load the same step's state, between backward passes.

        Raises ValueError for the state of another compressor, or of none.
        """
        saved = state["compressor"]
        if self.compressor is not None and saved is not None:
            self.compressor.load_state_dict(saved)
        elif self.compressor is not None or saved is not None:
            kind = "without a compressor" if saved is None else f"of {saved['compressor']}"
            raise ValueError(f"this is the state of a hook {kind}: give DDPState the same compressor")
        self.skipped_steps = int(state["skipped_steps"])
        self._loaded = dict(state.get("elements", {}))  # earlier versions saved none

    def wait(self) -> None:
        """Return when the buckets handed in so far are done; raise what went wrong with one of them."""
        if self._pending is not None:
            self._pending.wait()  # each collective has the communicator's own deadline
        if self.error is not None:
            raise self.error

    def _gather(self, inner: InnerRanks, device: torch.device) -> None:
        """At the end of a pass: agree with the host's ranks on what came of it, and bring the shards to all of them."""
        if self._pending is not None:
            self._pending.wait()
        mine = Passed.SKIPPED if self._skipping else Passed.DONE
        if self.error is not None:
            mine = Passed.REFUSED if isinstance(self.error, PeerRefusedError | InvalidTensorError) else Passed.FAILED
        found = inner.outcomes(mine, device)
        if (worst := max(found)) > Passed.SKIPPED:
            if self.error is None:
                text = f"{name_ranks([rank for rank, one in enumerate(found) if one == worst])} of this host's process "
                text += "group could not sum its shard between hosts: see the error there"
                self._fail(InvalidTensorError(text) if worst == Passed.REFUSED else CollectiveError(text))
            raise self.error or CollectiveError("")
        if worst == Passed.SKIPPED and not self._skipping:
            self._skip()
        for bucket in self._scattered:
            if worst == Passed.SKIPPED:
                _values(bucket.given if bucket.shards is None else bucket.shards.bucket).fill_(torch.nan)
            elif bucket.shards is not None:
                bucket.staged.wait()
                inner.gather(bucket.shards)
            if bucket.shards is not None:
                bucket.future.set_result(bucket.shards.bucket)
        self._scattered = []

    def close(self) -> None:
        """Return once the buckets handed in are summed, and take no further ones. Idempotent.

        The communicator stays open: close it too, or give it to a new DDPState.
        """
        if not self._closed:
            self.comm.check_process()
            self._closed = True
            if self._pending is not None:
                self._pending.wait()
            self._give_back()

    def _give_back(self) -> None:
        if self._first_moment is not None:
            self._first_moment.give_back()

    def __getstate__(self) -> dict[str, Any]:
        kept = ("compressor", "on_nonfinite", "skipped_steps", "reports")
        return {name: getattr(self, name) for name in kept} | {"_loaded": self.state_dict()["elements"]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.error = _CopiedError(COPIED)
        self._names = {}
        self._pending = None
        self._closed = True
        _log.warning("%s", COPIED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._pending is not None and not self._pending.done():
            # the others would wait for buckets that this rank does not send
            with self._failing:
                self.error = self.error or error
            self.comm.close(wait=False)
        self.close()

    def _end(self) -> None:
        """End at the end of the interpreter; a collective that is still running is interrupted."""
        if not self._closed and self._process == os.getpid():  # not in a forked child
            self._closed = True
            self.comm.close(wait=self.error is None)
            if self._pending is not None:
                self._pending.wait(_EXIT_S)

    def _fail(self, error: BaseException) -> None:
        """Keep the first error. Unless all ranks have it, leave the job, so that they do not wait for this one."""
        on_all_ranks = isinstance(error, PeerRefusedError | InvalidTensorError)
        with self._failing:
            if self.error is not None:
                return
            self.error = error
            error.add_note(REFUSED if on_all_ranks else FINISHED)
        self._give_back()
        if not on_all_ranks:
            self.comm.close(wait=False)

    def _prepare(self, bucket: _Bucket, *, ahead: bool = False) -> _Prepared:
        """Check and compress a bucket, without changing any state; return an error. `ahead`: when there is a place."""
        if ahead:
            self._places.acquire()
        try:
            if self.error is not None:
                raise self.error
            bucket.staged.arrive(self.comm.timeout_s)
            with torch.no_grad():
                if bucket.summed is not None:
                    return None
                _check_type(bucket)
                if self.compressor is None:
                    return None  # the sum refuses a NaN or an infinity, which it looks for in the pass for exponents
                if (fault := _not_finite(bucket)) is not None:
                    raise fault
                if not bucket.parts:
                    return None  # this rank's shard has none of it, and the shards of the same rank of other hosts
                with _RecordFunctionFast("p4reduce:compress"):
                    return begin(self.comm, self.compressor, bucket.parts, checked=True, begins=bucket.begins)
        except BaseException as error:
            return error

    def _run(self, bucket: _Bucket, ahead: CollectiveFuture[_Prepared] | None) -> None:
        """In the bucket's turn: sum it, and write its mean over its gradients. `ahead`: what `_prepare` returns."""
        try:
            prepared = self._prepare(bucket) if ahead is None else ahead.result()
            if self.error is not None:
                raise self.error
            with torch.no_grad(), _RecordFunctionFast("p4reduce:bucket"):
                if bucket.index == 0:
                    self._begin_step(bucket.last)
                if not self._skipping:
                    self._sum(bucket, prepared)
                if self._skipping:
                    if bucket.summed is not None:
                        bucket.summed.wait()  # or it would write its sum later
                    _values(bucket.buffer).fill_(torch.nan)
                bucket.staged.give_back()
            if bucket.shards is None:
                bucket.staged.complete(bucket.future, bucket.given)
        except BaseException as error:
            self._fail(error)
            if not bucket.future.done():
                bucket.future.set_exception(error)  # type: ignore[arg-type]  # torch types it as the value
        finally:
            if ahead is not None:
                self._places.release()

    def _begin_step(self, only_bucket: bool) -> None:
        self._skipping = False
        # A bucket that fails changes nothing of the compressor's state; those before it have to be undone.
        undo = self.on_nonfinite == "skip" and not (only_bucket and self.inner is None)
        self._before = self.compressor.state_dict() if self.compressor is not None and undo else None

    def _sum(self, bucket: _Bucket, prepared: _Prepared) -> None:
        """Sum a bucket. If one rank cannot, all ranks raise or skip the step."""
        try:
            if isinstance(prepared, BaseException):
                raise prepared
            if bucket.summed is not None:
                self._average_sparse(bucket)
            elif prepared is not None:
                outcome, report = prepared.finish()
                self.reports.append(report)
                for name, mean in outcome.means.items():
                    bucket.parts[name].copy_(mean)
            else:
                for piece in torch.split(bucket.buffer, collectives.MOST_BYTES // bucket.buffer.element_size()):
                    self.comm.all_reduce_segments([Floats(piece, mean=True, out=piece)], name="gradients")
            return
        except (InvalidTensorError, PeerRefusedError) as error:
            if not (bucket.summed is not None or all_may_go_on(self.comm, error)) or self.on_nonfinite != "skip":
                named = _not_finite(bucket) if isinstance(error, NotFiniteError) else None
                raise (named or error) from None
        self._skip()

    def _skip(self) -> None:
        """Skip the rest of the step, and undo what it changed."""
        self._skipping = True
        self.skipped_steps += 1
        if self.compressor is not None and self._before is not None:
            self.compressor.load_state_dict(self._before)

    def _group_of_sparse(self) -> dist.ProcessGroup | None:
        if self._group is None and dist.get_world_size() != self._ranks:
            raise InvalidTensorError(
                "sparse gradients are summed by the model's process group: give DDPState module=ddp"
            )
        return self._group

    def _average_sparse(self, bucket: _Bucket) -> None:
        """Make the mean of a sparse bucket; all ranks have the same one, and refuse it if it is not finite."""
        bucket.summed.wait()
        bucket.buffer.div_(self._ranks)
        if (fault := _not_finite(bucket)) is not None:
            raise fault


def ddp_hook(state: DDPState, bucket: GradBucket, *further: object) -> torch.futures.Future[torch.Tensor]:
    """The communication hook: `model.register_comm_hook(state, ddp_hook)`.

    Gives the mean of the bucket over all ranks, the same bits on every rank. Raises, in backward(),
    InvalidTensorError (wrong type, or a NaN or infinity, naming the parameter), PeerRefusedError (another rank's) and
    CollectiveError (CollectiveTimeoutError, JobResetError, ...). An error ends the state, and neither it nor the
    DistributedDataParallel object can be used again: make both anew from the module, after a CollectiveError with a
    new `join()`.

    Raises TypeError in FullyShardedDataParallel, which gives its hooks a tensor and, as `further`, one for its part.
    """
    if isinstance(bucket, torch.Tensor):
        raise TypeError(
            "ddp_hook is a hook of DistributedDataParallel, not of FullyShardedDataParallel: register none there, its "
            "reduce_scatter goes over p4reduce where its process group has that backend"
        )
    return state.reduce(bucket)


def _communicator_of(group: dist.ProcessGroup) -> Communicator:
    from p4reduce.pytorch.backend.group import ProcessGroupP4Reduce  # needs a newer torch than the hook

    if not isinstance(group, ProcessGroupP4Reduce):
        raise ValueError(
            f"the process group's backend is {dist.get_backend(group)}: give one of the backend p4reduce, "
            "or a communicator"
        )
    return group.join()


def _compare(comm: Communicator, on_nonfinite: str) -> None:
    """Raise ValueError on every rank when `on_nonfinite` is not the same on all."""
    given = comm.all_gather(np.array([_ON_NONFINITE.index(on_nonfinite)], np.uint8))[:, 0]
    ranks = {choice: np.flatnonzero(given == at).tolist() for at, choice in enumerate(_ON_NONFINITE)}
    if not all(ranks.values()):
        return
    said = " and ".join(f"{choice!r} on {name_ranks(of)}" for choice, of in ranks.items())
    raise ValueError(f"DDPState's on_nonfinite is {said}: give all ranks the same")


def _same_part(buffer: torch.Tensor, given: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return what a gradient, a part of `given`, is in `buffer`."""
    if buffer is given:
        return gradient
    offset = gradient.storage_offset() - given.storage_offset()
    return buffer.as_strided(gradient.size(), gradient.stride(), offset)


def _span(bucket: torch.Tensor, gradient: torch.Tensor) -> tuple[int, int]:
    begin = int(gradient.storage_offset()) - int(bucket.storage_offset())
    return begin, begin + gradient.numel()


def _values(bucket: torch.Tensor) -> torch.Tensor:
    """Return the numbers of a bucket, which may be sparse."""
    return bucket if bucket.layout is torch.strided else bucket._values()


def _check_type(bucket: _Bucket) -> None:
    """Raise InvalidTensorError for a bucket of a type, or on a device, of which there are no sums."""
    buffer = bucket.buffer
    if buffer.dtype not in float_dtypes():
        raise InvalidTensorError(
            f"gradient bucket {bucket.index} is {buffer.dtype}, not {FLOAT_NAMES}: give the parameters "
            "one of these types"
        )
    if buffer.device.type != "cpu":
        raise InvalidTensorError(
            f"gradient bucket {bucket.index} is on {buffer.device}; p4reduce's hook takes models on the CPU and on CUDA"
        )


def _not_finite(bucket: _Bucket) -> NotFiniteError | None:
    """Return an error that names the parameters whose gradients hold a NaN or an infinity, if any."""
    if is_finite(_values(bucket.buffer)):
        return None
    bad = (
        list(bucket.parts)
        if bucket.summed is not None
        else [name for name, gradient in bucket.parts.items() if not is_finite(gradient)]
    )
    return NotFiniteError(
        f"the gradient of {', '.join(bad)} holds a NaN or an infinity: lower the learning rate, or skip such steps "
        'on all ranks with DDPState(..., on_nonfinite="skip")'
    )


_states: "weakref.WeakSet[DDPState]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for state in list(_states):
        with contextlib.suppress(Exception):
            state._end()
