"""The process group of the backend "p4reduce".

Sums (all_reduce, reduce_scatter) of dtypes that the switch can add, and large broadcasts, go over the switch. All else
goes over a companion gloo group. Which way a collective goes depends only on what is equal on all ranks.

Every collective that torch's C++ code calls by a method of Python is one here: where it finds none, it calls its own
with the interpreter's lock held, which waits for gloo's lock, whose holder may wait for the interpreter's.
"""

from __future__ import annotations

import functools
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed as dist
from torch._C._profiler import _RecordFunctionFast
from torch.distributed import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    BarrierOptions,
    BroadcastOptions,
    ReduceScatterOptions,
)

from p4reduce.collective_queue import CallersTurn, CollectiveFuture, CollectiveQueue
from p4reduce.communicator import Communicator
from p4reduce.errors import (
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    CommunicatorClosedError,
    InvalidTensorError,
    JoinError,
    P4ReduceError,
    PeerRefusedError,
)
from p4reduce.launch.addresses import gloo_address
from p4reduce.launch.launch import Launch, NoRoomError, Told
from p4reduce.launch.processes import Processes, has_ended
from p4reduce.membership.join import load_all_kernels
from p4reduce.pytorch.backend import sums
from p4reduce.pytorch.backend.calls import STORE_S, Calls, GlooWork, Lost, wait_for, within
from p4reduce.pytorch.backend.contiguous import check_written, contiguously
from p4reduce.pytorch.backend.gloo import Gloo, PlainGloo, gloo_options
from p4reduce.pytorch.backend.jobs import GroupJob, end_launch, join_job
from p4reduce.pytorch.backend.members import Handle, claim, ordered, tell
from p4reduce.pytorch.backend.options import BACKEND, BROADCAST_BYTES, Options
from p4reduce.pytorch.backend.rendezvous import Watched, leave, meet, part
from p4reduce.pytorch.backend.routes import Routes
from p4reduce.pytorch.backend.torch_calls import as_list, by_gloo, options_of, recorded, tensors_in, uncompiled
from p4reduce.pytorch.backend.work import CollectiveWork, queues
from p4reduce.pytorch.refused_sums import all_may_go_on
from p4reduce.pytorch.staging import OnHost, is_staged, stage
from p4reduce_contracts.ranks import name_ranks

if TYPE_CHECKING:
    from p4reduce.pytorch.backend.compressed import CompressedSums

CLOSE_S = 5.0
"""Seconds that `shutdown` waits for a collective that is running."""
_LOOK_S = 0.1
"""Seconds between two looks at what the other ranks tell, while gloo connects."""

_FEWEST_S = 1.0
"""Seconds that the members of a group that is reconfigured have at least, once they have met."""
_AGAIN = ": call reconfigure again, with another uuid, on all ranks"

_log = logging.getLogger(__name__)
_c10d: Any = dist  # whose stubs know one signature of the several that torch calls
RECONFIGURES: bool = hasattr(PlainGloo, "reconfigure")
"""Whether torch's groups can change their members: from 2.14 on."""
_AllgatherOptions: Any = _c10d.distributed_c10d.AllgatherOptions
_NOTHING = OnHost([], [])
_NO_TIMEOUT = timedelta(0)
_HAS_ASYNC_OP = hasattr(AllreduceOptions(), "asyncOp")
"""Whether options say if the caller waits for the result: not those of old versions of torch."""


class ProcessGroupP4Reduce(_c10d.ProcessGroup):  # type: ignore[misc]
    """`torch.distributed.init_process_group("p4reduce")` makes one; see `Options` for what pg_options may say.

    The world's job is joined when the group is made, a subgroup's at its first collective over the switch.
    """

    def __init__(self, group: Any, options: Any = None) -> None:
        """`group`: torch's `_DistributedBackendOptions`. Raises JoinError, on all ranks, also for options of one."""
        super().__init__(group.group_rank, group.group_size)
        self._calls: Any = None
        self._base_store = _c10d.PrefixStore("p4reduce/", group.store)
        """The store with the prefix that all processes have which may become members."""
        self._store: Any = None
        """The store with the prefix of the present members."""
        self._is_world = not group.global_ranks_in_group
        self._others: dict[str, Any] = {}
        """The groups of other backends, by the types of their devices."""
        self._making, self._reconfiguring = threading.Lock(), threading.Lock()
        self._job: GroupJob | None = None
        self._former: Launch | None = None
        """What this rank has started for the members before."""
        self._unusable = ""
        """The reason why no collective can be called; "" where one can."""
        self._members: list[Handle] = []
        """The members that the last reconfigure has made; none before."""
        self._closed = False
        self._closing = threading.Lock()
        self._queue = CollectiveQueue(f"p4reduce-group-{group.group_id}")
        """The queue of collectives over the switch, and of those over gloo in their place; the communicator's too."""
        queues.add(self._queue)
        self._gloo: Any = None
        self._gloo_store = Watched(None, lambda: None)
        """The store of `_gloo`, which goes on in that of other members."""
        self._second_gloo: Any = None
        """The gloo group for what the queue runs: other threads call the first one, in another order."""
        self._handle = Handle.of_this_process(group.group_rank, secrets.token_hex(8), is_new=True)
        self._begin(group.group_size)
        rank, size, timeout = group.group_rank, group.group_size, group.timeout
        if deferred := getattr(group, "enable_reconfigure", False):
            self._set_options(group, options)
            self._unusable = "this process group was made with enable_reconfigure=True: call reconfigure first"
            load_all_kernels()  # now: other members may wait for the first reconfigure
            options = gloo_options("127.0.0.1", timeout)  # until then
            options.enable_reconfigure = True
            self._make_gloo(rank, size, options)
        else:
            self._name = meet(self._base_store, rank, size, timeout.total_seconds())
            self._store = _c10d.PrefixStore(self._name, self._base_store)  # with the key "all" of `meet`
            with Told(self._store, timeout.total_seconds()).telling(rank, size):
                self._set_options(group, options)
            self._calls = Calls(self._store, rank, size)
            self._connect(rank, size, timeout)
        self._companion = _c10d.ProcessGroup(group.group_rank, group.group_size)
        """Calls `_gloo`, without the interpreter's lock, by methods that `_gloo` has not."""
        for process_group in (self, self._companion):
            for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                process_group._register_backend(torch.device(device), _c10d.ProcessGroup.BackendType.GLOO, self._gloo)
            process_group._set_default_backend(_c10d.ProcessGroup.BackendType.GLOO)
        if self._over_switch and not deferred:
            self._communicator()

    def _set_options(self, group: Any, options: Any) -> None:
        if options is not None and not isinstance(options, Options):
            raise TypeError(f"pg_options is {options!r}; the backend {BACKEND} takes p4reduce.pytorch.backend.Options")
        self._options = options or Options()
        self._summed_types = sums.DTYPES if self._options.float_sums != "gloo" else frozenset({torch.int32})
        self._how: Any = {"bits": self._options.bits, "refuse_underflow": self._options.float_sums == "auto"}
        """Arguments of each sum of floats."""
        self._limit: tuple[timedelta, float] = _NO_TIMEOUT, 0.0
        """The time limit of the last call, also in seconds."""
        compressor = self._options.compressor_of(world=not group.global_ranks_in_group)
        self._compressed: CompressedSums | None = None
        self._hint = ""
        """Text at the end of an error about different calls."""
        if compressor is not None:
            from p4reduce.pytorch.backend.compressed import CompressedSums

            self._hint = "; with a compressor all ranks make the same steps, without DDP.join()"
            self._hint += " (docs/torch-backend.md#compression)"
            name = f"{group.group_id}:" if group.global_ranks_in_group else ""
            self._compressed = CompressedSums(compressor, self._options.compress_bytes, name)

    def _begin(self, size: int) -> None:
        """Begin with so many members, of whom all are in the same state."""
        self._ranks = size
        self._routes = Routes()
        self._over_switch = self._is_world and size > 1
        """Whether a collective over the switch was called: equal on all ranks, in the order of their calls."""
        self._no_room = ""
        """The reason why gloo takes all collectives; "" where it does not."""
        self._submitted = 0

    @classmethod
    def over(
        cls,
        store: Any,
        rank: int,
        size: int,
        *,
        timeout: timedelta | None = None,
        options: Options | None = None,
        enable_reconfigure: bool = False,
    ) -> Self:
        """Make a process group of the `size` ranks that share `store`, without `init_process_group`.

        For programs that make their groups anew, as torchft does. Groups of one time need prefixes of their own in the
        store.
        `timeout` is of each collective, torch's default if None. `enable_reconfigure` is as of `init_process_group`.
        Raises JoinError.
        """
        limit = timeout or dist.constants.default_pg_timeout
        group = SimpleNamespace(
            store=store, group_rank=rank, group_size=size, timeout=limit, group_id="", global_ranks_in_group=[]
        )
        group.enable_reconfigure = enable_reconfigure
        made = cls(group, options)
        made._named = {}  # no text names it
        return made

    def name(self) -> str:
        """Return the backend's name."""
        return BACKEND

    getBackendName = name

    def _get_sequence_number_for_group(self) -> int:
        return self._submitted + int(self._gloo._get_sequence_number_for_group())

    def join(self) -> Communicator:
        """Return what sums over the switch, once the collectives that were called before have ended.

        All ranks call it; the first time they join the group's job. Its collectives and the group's come in one order,
        that of the calls. Raises DistBackendError for a group that takes gloo for all collectives.
        """
        self._submit("join", [], BarrierOptions(), lambda timeout_s: self._communicator()).wait()
        if self._job is None:
            raise _c10d.DistBackendError(f"this process group takes gloo for all collectives: {self._no_room}")
        return self._job.comm

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: Any = "cpu") -> torch.Tensor:
        """Return a tensor of `size` numbers, not initialized, whose sums are not copied to the host's memory first.

        Other memory where the ranks of this host share none yet, or it has no room. Each rank calls it when it wants.
        """
        hosts = None if self._job is None or torch.device(device).type != "cpu" else self._job.comm.hosts
        memory = None if hosts is None else hosts.sums
        found = None if memory is None else memory.empty(size * dtype.itemsize)
        return torch.empty(size, dtype=dtype, device=device) if found is None else torch.from_numpy(found).view(dtype)

    # Sums

    @recorded
    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, **keywords: Any) -> Any:
        """Sum each tensor over all ranks, in place."""
        if type(opts) is not AllreduceOptions:
            opts = options_of(AllreduceOptions, opts, timeout, **keywords)
        if opts.reduceOp != dist.ReduceOp.SUM or type(tensors) is not list:
            tensors = sums.multiplied(as_list(tensors), opts, in_place=True)
        if not self._takes(tensors, opts.reduceOp):
            return self._over_gloo(self._gloo.allreduce, tensors, opts)
        tensor, job = tensors[0], self._job
        plain = not tensors[1:] and tensor.dtype != torch.complex64 and opts.reduceOp == dist.ReduceOp.SUM
        if job is None or self._compressed is not None or not plain or not tensor.is_contiguous():
            return self._sum_in_place("all_reduce", tensors, opts)
        if tensor.nbytes > sums.MOST_BYTES:
            return self._sum_in_place("all_reduce", tensors, opts)
        staged = OnHost(tensors, tensors) if tensor.is_cpu else stage(tensor.device, tensors, tensors)
        how = self._how if tensor.dtype != torch.int32 else {}
        collective = functools.partial(job.comm.all_reduce, staged.reads[0], out=staged.writes[0], **how)
        over_gloo = functools.partial(self._sum_over_gloo_in_place, staged.writes[0])
        return self._submit("all_reduce", tensors, opts, collective, staged, over_gloo)

    @recorded
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Sum several tensors over all ranks, in place, in one collective for all that the switch can sum."""
        opts = options_of(AllreduceCoalescedOptions, opts, None)
        tensors = sums.multiplied(as_list(tensors), opts, in_place=True)
        if not self._takes(tensors, opts.reduceOp):
            return self._over_gloo(self._gloo.allreduce_coalesced, tensors, opts)
        return self._sum_in_place("all_reduce_coalesced", tensors, opts)

    @recorded
    def _reduce_scatter_base(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        """Sum `given` over all ranks; `output` becomes this rank's part of it."""
        opts = options_of(ReduceScatterOptions, opts, None)
        (given,) = sums.multiplied([given], opts)
        if not self._takes([given], opts.reduceOp, output):
            return self._over_gloo(self._gloo._reduce_scatter_base, output, given, opts)
        return self._sum_to_parts([output], [given], opts)

    reduce_scatter_single = _reduce_scatter_base

    @uncompiled
    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Do `reduce_scatter_single` with several tensors, in one collective for all."""
        if (other := self._other(inputs)) is not None:
            return other.reduce_scatter_tensor_coalesced(outputs, inputs, opts)
        opts = options_of(ReduceScatterOptions, opts, None)
        inputs = sums.multiplied(inputs, opts)
        if not self._takes(inputs, opts.reduceOp, *outputs):
            return self._over_gloo(self._companion.reduce_scatter_tensor_coalesced, outputs, inputs, opts)
        return self._sum_to_parts(outputs, inputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _sum_to_parts(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> CollectiveWork:
        for output, given in zip(outputs, inputs, strict=True):
            length = output.numel()
            if given.numel() != length * self.size():
                text = f"reduce_scatter of {given.numel()} numbers to {length} on each of {self.size()} ranks"
                raise ValueError(text)
        parts = [(self.rank() * output.numel(), (self.rank() + 1) * output.numel()) for output in outputs]
        return self._scatter(outputs, inputs, parts, slice(None), opts)

    def _scatter(
        self,
        outputs: list[torch.Tensor],
        inputs: list[torch.Tensor],
        parts: list[tuple[int, int]],
        which: slice,
        opts: Any,
    ) -> CollectiveWork:
        staged = stage(inputs[0].device, inputs, outputs)
        names = self._names("reduce_scatter", inputs)

        def run(*, timeout_s: float) -> None:
            sums.write(staged.writes, self._sum(staged.reads, parts, opts.reduceOp, timeout_s, names)[which])

        return self._submit("reduce_scatter", outputs, opts, run, staged)

    @recorded
    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Sum the rows of `inputs` over all ranks; this rank's row becomes `outputs`."""
        opts = options_of(ReduceScatterOptions, opts, None)
        (output,), (rows,) = as_list(outputs), inputs
        rows = sums.multiplied(rows, opts)
        if not self._takes(rows, opts.reduceOp, output):
            return self._over_gloo(self._gloo.reduce_scatter, [output], [rows], opts)
        parts = [(0, row.numel() if rank == self.rank() else 0) for rank, row in enumerate(rows)]
        return self._scatter([output], rows, parts, slice(self.rank(), self.rank() + 1), opts)

    @recorded
    def barrier(self, opts: Any = None) -> Any:
        """Return once every rank has called it and all collectives before it have ended."""
        opts = options_of(BarrierOptions, opts, None)
        if not self._over_switch:
            return self._call_gloo(self._gloo.barrier, opts)

        def run(*, timeout_s: float) -> None:
            if (comm := self._communicator()) is None:
                wait_for(self._gloo_of_thread().barrier(opts), lost=self._lost)
            else:
                comm.barrier(timeout_s=timeout_s)

        return self._submit("barrier", [], opts, run)

    # Copies

    @recorded
    def broadcast(self, tensors: Any, opts: Any = None, **keywords: Any) -> Any:
        """Copy the root's tensor to all ranks."""
        opts = options_of(BroadcastOptions, opts, None, **keywords)
        tensors = as_list(tensors)
        if not self._is_large(tensors):
            return self._call_gloo(self._gloo.broadcast, tensors, opts)
        check_written(tensors)
        staged = stage(tensors[0].device, tensors, tensors)

        def run(*, timeout_s: float) -> None:
            (tensor,) = staged.writes
            words, comm, gloo = sums.as_bytes(tensor), self._communicator(), self._gloo_of_thread()

            def over_gloo(piece: torch.Tensor) -> torch.Tensor:
                wait_for(contiguously(gloo.broadcast, [piece], opts), lost=self._lost)
                return piece

            for _, (piece,), _, left_s in sums.collectives([words], timeout_s):
                otherwise = functools.partial(over_gloo, piece)
                if comm is None:
                    found = otherwise()
                else:
                    over_switch = functools.partial(comm.broadcast, piece, opts.rootRank, timeout_s=left_s)
                    found = self._routes.run(comm, len(piece), over_switch, otherwise, left_s)
                if found.data_ptr() != piece.data_ptr():
                    piece.copy_(found)
            if words.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(words.view(tensor.dtype).reshape(tensor.shape))

        return self._submit("broadcast", tensors, opts, run, staged)

    @recorded
    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Copy every rank's tensor into `outputs`, by rank."""
        return self._call_gloo(
            self._gloo.allgather, outputs, as_list(inputs), options_of(_AllgatherOptions, opts, None)
        )

    @recorded
    def _allgather_base(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        """Copy every rank's `given` into `output`, by rank."""
        opts = options_of(_AllgatherOptions, opts, None)

        def gather(output: torch.Tensor, given: torch.Tensor, opts: Any) -> Any:
            if output.dim() != given.dim():  # gloo takes no output of [ranks, ...]
                output, given = output.view(-1), given.contiguous().view(-1)
            return self._gloo._allgather_base(output, given, opts)

        return self._call_gloo(gather, output, given, opts, name="_allgather_base")

    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced = by_gloo("allgather_into_tensor_coalesced")

    # What never goes over the switch

    all_to_all_single = alltoall_base = by_gloo("alltoall_base")
    alltoall = by_gloo("alltoall")
    gather = by_gloo("gather")
    scatter = by_gloo("scatter")
    reduce = by_gloo("reduce")
    send = by_gloo("send")
    recv = by_gloo("recv")
    recv_anysource = recvAnysource = by_gloo("recv_anysource")

    # Other members

    @property
    def supports_reconfigure(self) -> bool:
        """Whether `reconfigure` can be called: from torch 2.14 on, where no job is given."""
        return RECONFIGURES and self._options.job is None and not self._named

    def get_reconfigure_handle(self) -> str:
        """Return the text by which members of the next group know this one; each reconfigure makes it void."""
        self._check_reconfigures()
        return str(self._handle)

    @uncompiled
    def reconfigure(self, opts: Any) -> CollectiveWork:
        """Make those whose handles are given the members of this group, ranked in their order; all of them call it.

        They need one store. `opts`: torch's ReconfigureOptions, whose `hints` are not read. Calls that have not ended
        get errors. Returns a work that is done. Raises DistBackendError: where a uuid was used, a member does not
        call it in time or has ended, all get it, and the group stays as it is; where it fails later all get it too,
        and can use the group when they have called this again.
        """
        self._check_reconfigures()
        with self._reconfiguring:
            members, timeout = ordered(opts.handles, self._handle), opts.timeout or self._timeout
            store = _c10d.PrefixStore(f"reconfigure/{opts.uuid}/", self._base_store)
            name, rank = claim(store, opts.uuid, members), members.index(self._handle)
            meets, makes = (_c10d.PrefixStore(step, store) for step in ("meet/", "make/"))
            told = Told(tell(meets, members), timeout.total_seconds(), Processes(meets, rank, "meet"))
            try:
                with told.telling(rank, len(members), hear_s=0.0):
                    told.agree(rank, len(members), "reconfigure the group")
            except JoinError as error:
                raise _c10d.DistBackendError(f"{BACKEND}:reconfigure: {error}") from error
            self._unusable = f"the reconfigure of this process group did not end{_AGAIN}"
            self._members = members
            self._handle = Handle.of_this_process(rank, secrets.token_hex(8), is_new=False)
            self._leave(wait=False, goes_on=True)
            left_s, seen = max(_FEWEST_S, told.until - time.monotonic()), Processes(tell(makes, members), rank, "make")
            told, self._name, self._store = Told(makes, left_s, seen), name, makes
            kept = tell(_c10d.PrefixStore("group/", store), members)
            self._calls = Calls(kept, rank, len(members))
            try:
                with told.telling(rank, len(members), hear_s=0.0):
                    self._enter(rank, len(members), opts, timedelta(seconds=told.timeout_s))
                    told.agree(rank, len(members), "reconfigure the group")
            except Exception as error:
                self._leave(wait=False, goes_on=True)
                self._unusable = f"reconfigure failed: {error}{_AGAIN}"
                raise _c10d.DistBackendError(f"{BACKEND}:{self._unusable}") from error
            self._store, self._unusable = kept, ""
            for used in (meets, makes):
                leave(used, len(members))
        done = CollectiveFuture[None](lambda: None)
        done.has_ended = True
        return CollectiveWork(f"{BACKEND}:reconfigure", [], _NOTHING, done)

    def _enter(self, rank: int, size: int, opts: Any, timeout: timedelta) -> None:
        """Connect to the members, and join their job."""
        of_gloo = type(opts)()
        of_gloo.uuid, of_gloo.timeout = opts.uuid, timeout
        own = PlainGloo.get_reconfigure_handle(self._gloo)  # of the others gloo reads the number alone
        of_gloo.handles = [own if each == rank else f"gloo:{each}:0:{each}:{each}" for each in range(size)]
        self._connect(rank, size, timeout, of_gloo)
        self._begin(size)
        if self._compressed is not None:
            self._compressed.begin_anew()
        if self._over_switch:
            self._join_job(timeout)

    @property
    def _lost(self) -> Lost | None:
        """What a rank that waits for gloo looks at; None before the first reconfigure."""
        return self._find_lost if self._members else None

    def _find_lost(self) -> str:
        """Return why the present members will not all come any more; "" while they may."""
        failure = None if self._job is None else self._job.comm.failure.lost()
        ended = [rank for rank, member in enumerate(self._members) if has_ended(member.process)]
        return str(failure or "") or (f"{name_ranks(ended)} of this group: ended" if ended else self._unusable)

    def _check_reconfigures(self) -> None:
        if self._closed:
            raise _c10d.DistBackendError(f"{BACKEND}:reconfigure: this process group was shut down")
        if self._named:
            raise RuntimeError(f"a process group with multiple backends cannot be reconfigured: {self._named}")
        if not RECONFIGURES:
            raise RuntimeError(f"torch {torch.__version__} does not reconfigure groups: 2.14 does")
        if self._options.job is not None:
            raise RuntimeError(f"the job {self._options.job!r} was given, whose ranks are fixed: give none")

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of calls that give none, also of the groups of other backends."""
        self._gloo._set_default_timeout(timeout)

    def _set_timeout_of_others(self, timeout: timedelta) -> None:
        for other in self._others.values():
            getattr(dist, "set_timeout", _c10d.distributed_c10d._set_pg_timeout)(timeout, other)

    # The end

    def shutdown(self) -> None:
        """Leave the job, wait for the other ranks to do so, and drop the companion; for `destroy_process_group`.

        Idempotent. Waits for 4 s at most for ranks that do not call it.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
        together = self._is_world and self._job is not None and self._job.comm.failure.lost() is None
        try:
            self._leave(wait=True)
            self._gloo = self._companion = self._second_gloo = None
            if together:
                part(self._store, self._handle.rank, self._ranks, ends=self._has_own_server())
            elif self._store is not None and (not self._is_world or self._ranks == 1):
                within(STORE_S, functools.partial(leave, self._store, self._ranks))
        finally:
            end_launch(self._former)
        self._store = self._base_store = None

    def abort(self) -> None:
        """End all collectives at once, with errors. Only `shutdown` and `reconfigure` may follow."""
        with self._closing:
            if not self._closed and self._calls is not None:
                self._unusable = "this process group was aborted"
                self._leave(wait=False)
                end_launch(self._former)
                self._former = None

    def _leave(self, *, wait: bool, goes_on: bool = False) -> None:
        """Leave the job and the groups of other backends; `goes_on` as in `GroupJob.close`."""
        if (job := self._job) is not None:
            groups = filter(None, (self._gloo, self._second_gloo))
            over_gloo = sum(int(each._get_sequence_number_for_group()) for each in groups)
            job.comm.count_over_gloo = lambda: over_gloo
            job.close(wait=wait, goes_on=goes_on)
            self._job, self._former = None, job.launch or self._former
        self._queue.drain(CLOSE_S)
        for other in self._others.values():
            other.shutdown() if wait else other.abort()
        self._others = {}
        if self._calls is not None:
            self._calls.close()

    def _has_own_server(self) -> bool:
        """Return whether torch made the store of this group, with a server in rank 0's process."""
        made = dist.group.WORLD is self and _c10d.distributed_c10d._default_pg_init_method is not None
        return made and not self._members and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True)

    # How

    def _takes(self, tensors: Sequence[torch.Tensor], op: Any, *outputs: torch.Tensor) -> bool:
        """Return whether the switch sums these: the same answer on all ranks, as shapes and dtypes are the same."""
        if self._ranks == 1 or not (op == dist.ReduceOp.SUM or op == dist.ReduceOp.AVG):
            return False
        elements = False
        for tensor in tensors:
            if tensor.dtype not in self._summed_types:
                return False
            elements = elements or 0 not in tensor.shape
        first, given = tensors[0], (*tensors[1:], *outputs)
        plain = first.is_cpu and first.layout is torch.strided and not self._named and not given
        return elements and (plain or self._are_its_own(first, *given))

    def _is_large(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether the switch may broadcast these; small ones are faster over gloo."""
        if len(tensors) != 1 or self.size() == 1:
            return False
        size = tensors[0].numel() * tensors[0].element_size()  # sparse tensors have no nbytes
        return size >= BROADCAST_BYTES and self._are_its_own(*tensors)

    def _are_its_own(self, *tensors: torch.Tensor) -> bool:
        """Return whether they are dense and on one device, the CPU or one that is staged, without gloo by name."""
        first = tensors[0].device
        plain = is_staged(first) and all(each.layout is torch.strided and each.device == first for each in tensors)
        return plain and first.type not in self._named

    @functools.cached_property
    def _named(self) -> dict[str, str]:
        """The backends that the text that names this one names for types of devices, as "cpu:gloo,cuda:p4reduce" does.

        torch says the text after this group is made.
        """
        pairs = (pair.split(":") for pair in dist.get_backend_config(self).split(","))
        return {device: name for device, name in pairs if name != BACKEND}

    def _other(self, arguments: Any) -> Any:
        """Return the group of another backend than gloo that is named for the first tensor's device, or None.

        torch keeps this group alone of those that a text names, so the first call of such a tensor makes the other.
        """
        first = next(tensors_in(arguments), None) if self._named else None
        device = "" if first is None else first.device.type
        name = self._named.get(device, "gloo")
        if name == "gloo":
            return None
        with self._making:
            if device not in self._others:
                # new_group would name it by counts that differ between ranks of different groups
                make, text = _c10d.distributed_c10d._new_process_group_helper, f"{device}:{name}"
                whose = self.size(), self.rank(), dist.get_process_group_ranks(self)
                how = {"timeout": self._timeout}
                self._others[device], _ = make(*whose, text, self._store, f"{self.group_name}/{text}", **how)
        return self._others[device]

    def _ended(self) -> str:
        """Return why no collective can be called; "" where one can."""
        return "this process group was shut down" if self._closed else self._unusable

    def _check_usable(self, name: str) -> None:
        if self._closed or self._unusable:
            raise _c10d.DistBackendError(f"{BACKEND}:{name}: {self._ended()}")

    def _over_gloo(self, collective: Callable[..., Any], *arguments: Any) -> Any:
        """Call the companion's collective; AVG, which gloo has not, is its sum divided by the number of ranks."""
        opts = arguments[-1]
        if getattr(opts, "reduceOp", None) != dist.ReduceOp.AVG:
            return self._call_gloo(collective, *arguments)
        opts.reduceOp = dist.ReduceOp.SUM
        work = self._call_gloo(collective, *arguments)
        results = as_list(arguments[0])
        staged = stage(results[0].device, [], [])

        def divide() -> None:
            with staged.writing(results), torch.no_grad():  # `detach` of a sparse tensor is another one
                work.wait()
                for tensor in results:
                    tensor.copy_(sums.mean_of(tensor, self.size()))

        return CollectiveWork(f"{BACKEND}:average", results, staged, self._queue.submit(divide))

    def _call_gloo(self, collective: Callable[..., Any], *arguments: Any, name: str = "") -> GlooWork:
        """Call a collective of the companion whose last arguments are what this rank gives, and the options."""
        self._check_usable(name or collective.__name__)
        given = list(tensors_in(arguments[-2:-1]))
        call = self._calls.begin(name or collective.__name__, given, "gloo", self._limit_s(*arguments[-1:]))
        return GlooWork(contiguously(collective, *arguments), call, self._calls, self._lost)

    def _limit_s(self, opts: Any = None) -> float:
        given_s: float = opts.timeout.total_seconds() if hasattr(opts, "timeout") else 0
        return given_s if given_s > 0 else self._timeout.total_seconds()

    def _sum_in_place(self, name: str, tensors: list[torch.Tensor], opts: Any) -> CollectiveWork:
        check_written(tensors)
        staged = stage(tensors[0].device, tensors, tensors)
        names = self._names("all_reduce", tensors)

        def run(*, timeout_s: float) -> None:
            self._sum(staged.writes, None, opts.reduceOp, timeout_s, names)

        return self._submit(name, tensors, opts, run, staged)

    def _names(self, collective: str, tensors: list[torch.Tensor]) -> list[str]:
        """Return names for the tensors of a sum that is compressed; none where it is not."""
        return [] if self._compressed is None else self._compressed.names(collective, tensors)

    def _sum(
        self, tensors: list[torch.Tensor], parts: sums.Parts, op: Any, timeout_s: float, names: list[str]
    ) -> list[torch.Tensor]:
        """Sum as `_sum_once` does, in several collectives where the tensors are large."""
        average, rows = bool(op == dist.ReduceOp.AVG), sums.in_rows(tensors)
        found: list[list[torch.Tensor]] = [[] for _ in rows]
        for which, pieces, begin, left_s in sums.collectives(rows, timeout_s):
            spans = None if parts is None else sums.spans_of(pieces, begin, parts[which])
            totals = self._sum_once(pieces, spans, average, left_s, sums.names_at(names[which], begin))
            for of_tensor, total in zip(found[which], totals, strict=True):
                of_tensor.append(total)
        if parts is None:
            return sums.write(tensors, rows)
        return [totals[0] if len(totals) == 1 else torch.cat(totals) for totals in found]

    def _sum_once(
        self, tensors: list[torch.Tensor], parts: sums.Parts, average: bool, timeout_s: float, names: list[str]
    ) -> list[torch.Tensor]:
        """Sum in one collective; `parts` and the result as of `sums.keep`.

        gloo sums, on all ranks, where the switch has no room for the group, or a rank has a NaN, an infinity, or too
        many numbers that would become 0.
        """
        if (comm := self._communicator()) is not None:
            try:
                if self._compressed is None or not names:
                    return sums.over_switch(comm, tensors, parts, average=average, timeout_s=timeout_s, **self._how)
                totals = self._compressed.means(comm, names, tensors, timeout_s)
                return sums.keep(tensors, parts, totals if average else [mean.mul_(self.size()) for mean in totals])
            except (InvalidTensorError, PeerRefusedError) as error:
                if not all_may_go_on(comm, error):
                    raise
        return sums.keep(tensors, parts, [self._sum_over_gloo(tensor, average) for tensor in tensors])

    def _sum_over_gloo_in_place(self, tensor: torch.Tensor) -> None:
        tensor.detach().copy_(self._sum_over_gloo(tensor, False))

    def _sum_over_gloo(self, tensor: torch.Tensor, average: bool) -> torch.Tensor:
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        numbers = torch.view_as_real(total) if total.is_complex() else total
        wait_for(contiguously(self._gloo_of_thread().allreduce, [numbers]), lost=self._lost)
        return sums.mean_of(total, self.size()) if average else total

    @property
    def _timeout(self) -> timedelta:
        """Return the time limit of calls that give none: the companion's, which torch changes (`set_timeout`)."""
        timeout: timedelta = self._gloo.options._timeout
        return timeout

    def _gloo_of_thread(self) -> Any:
        self._second_gloo._set_default_timeout(self._timeout)
        return self._second_gloo

    def _communicator(self) -> Communicator | None:
        """Return what sums over the switch; the first time all ranks join the group's job.

        None, on all ranks, for a subgroup for whose job the switch had no room.
        """
        if self._no_room:
            return None
        if self._job is None:
            if cause := self._ended():
                raise CommunicatorClosedError(cause)
            self._join_job(self._timeout)
        return None if self._job is None else self._job.comm

    def _join_job(self, timeout: timedelta) -> None:
        whose = self._store, self.rank(), self.size(), timeout.total_seconds()
        how: Any = {"subgroup": not self._is_world, "run": self._name, "former": self._former}
        how["single_epoch"] = bool(self._members)
        try:
            with (
                Told(self._store, 0.0).telling(self.rank(), self.size()),
                Processes(self._store, self.rank(), "join") as seen,
            ):
                self._job = join_job(*whose, self._options, seen, **how)
        except NoRoomError as error:
            if self._is_world:
                raise
            self._no_room = str(error)
            if self.rank() == 0:
                _log.warning("a process group of %d ranks takes gloo for all collectives: %s", self.size(), error)
            return
        self._job.comm.timeout_s = self._timeout.total_seconds()
        self._job.comm.queue = self._queue
        self._job.comm.path.at_wait = self._calls.running_waits
        if self._compressed is not None:
            self._compressed.compressor.check(self._job.comm.lease)

    def _make_gloo(self, rank: int, size: int, options: Any) -> None:
        self._gloo = Gloo(_c10d.PrefixStore("gloo/", self._gloo_store), rank, size, options)
        self._gloo.group = weakref.ref(self)

    def _connect(self, rank: int, size: int, timeout: timedelta, opts: Any = None) -> None:
        """Make both gloo groups in this time; gloo alone takes five times as long where a rank has ended.

        `opts`: those with which the first one reconfigures, if it is there.
        """
        processes = Processes(self._store, rank, "connect")
        told = Told(self._store, timeout.total_seconds(), processes)
        store = self._gloo_store.go_on(self._store, told.look)
        store.set(f"connects/{rank}", "")

        def make() -> None:
            options = gloo_options(gloo_address(store, rank, size), timeout)
            if opts is None:
                self._make_gloo(rank, size, options)
            else:
                self._gloo.options._devices = options._devices
                PlainGloo.reconfigure(self._gloo, opts)
            options = gloo_options("", timeout, self._gloo.options._devices)
            options._threads = 1  # the queue makes one call at a time
            self._second_gloo = PlainGloo(_c10d.PrefixStore("second/", store), rank, size, options)

        try:
            with told.telling(rank, size), processes:
                made = self._queue.submit(make)
                while not made.wait(min(_LOOK_S, max(0.0, told.until - time.monotonic()))):
                    told.look()
                    if time.monotonic() >= told.until:
                        away = [rank for rank in range(size) if not self._store.check([f"connects/{rank}"])]
                        text = f"; {name_ranks(away)} did not begin" if away else ""
                        raise _c10d.DistBackendError(f"{BACKEND}:connect timed out after {told.timeout_s:g} s{text}")
                made.result()
        finally:
            self._queue.drain(CLOSE_S)  # which the error that was told has ended, but in the middle of a connection

    def _submit(
        self,
        name: str,
        outputs: list[torch.Tensor],
        opts: Any,
        collective: Callable[..., object],
        staged: OnHost = _NOTHING,
        over_gloo: Callable[[], None] | None = None,
    ) -> CollectiveWork:
        """Run a collective, which takes `timeout_s`, in its turn; errors of ours become torch's DistBackendError.

        `over_gloo`: what to do, on all ranks, where a rank has a NaN, an infinity, or too many numbers that would
        become 0; None: that is an error.
        """
        self._check_usable(name)
        given = opts.timeout if opts.timeout > _NO_TIMEOUT else self._gloo.options._timeout
        limit = self._limit
        if given != limit[0]:
            self._limit = limit = given, given.total_seconds()
        timeout_s = limit[1]
        full_name = f"{BACKEND}:{name}"
        calls, call = self._calls, self._calls.begin(name, staged.reads, BACKEND, timeout_s)

        def run() -> None:
            calls.running = call
            with _RecordFunctionFast(full_name, staged.reads):  # a tenth of what torch.profiler.record_function takes
                try:
                    if staged.is_copy:
                        staged.arrive(timeout_s)
                    try:
                        collective(timeout_s=timeout_s)
                    except (InvalidTensorError, PeerRefusedError) as error:
                        if over_gloo is None or self._job is None or not all_may_go_on(self._job.comm, error):
                            raise
                        over_gloo()
                    if staged.is_copy:
                        staged.give_back()
                except CollectiveTimeoutError as error:
                    text = f"{full_name} timed out; its timeout was {timeout_s:g} s: {error}"
                    raise _c10d.DistBackendError(text + calls.after(call, timed_out=True)) from error
                except CollectiveMismatchError as error:
                    raise _c10d.DistBackendError(f"{full_name}: {error}{self._hint}") from error
                except CollectiveError as error:
                    text = f"{full_name}: {error}{calls.after(call, timed_out=False)}"
                    raise _c10d.DistBackendError(text) from error
                except P4ReduceError as error:
                    calls.ended(call)
                    raise _c10d.DistBackendError(f"{full_name}: {error}") from error
                if calls.written is call:
                    calls.ended(call)

        self._over_switch = True
        self._submitted += 1
        future: CollectiveFuture[None] | None = None
        if _HAS_ASYNC_OP and not opts.asyncOp:  # on this thread, if nothing runs before it
            try:
                with CallersTurn(self._queue, "", 0.0):
                    future = CollectiveFuture(run)
                    try:
                        run()
                    except BaseException as error:
                        future.error = error
                    future.has_ended = True
            except CollectiveTimeoutError:
                future = None
        return CollectiveWork(full_name, outputs, staged, future or self._queue.submit(run))
