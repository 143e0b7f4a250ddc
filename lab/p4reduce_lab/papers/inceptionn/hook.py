"""DistributedDataParallel over a ring of hosts, for when no switch is there: no job, no controller.

    from p4reduce_lab.papers.inceptionn import Inceptionn, RingState, ring_hook

    model = DistributedDataParallel(model)
    model.register_comm_hook(RingState(Inceptionn()), ring_hook)

The gradients pass through the process group that DistributedDataParallel has, shortened by the codec on every hop.
"""

# No `from __future__ import annotations` here: DistributedDataParallel compares the hook's annotations as
# objects.

import hashlib
from collections.abc import Generator
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from p4reduce.collective_queue import CollectiveFuture, CollectiveQueue
from p4reduce.errors import CollectiveError, CommunicatorClosedError, InvalidTensorError
from p4reduce.timeouts import DEFAULT_TIMEOUT_S, Timeout, timeout_seconds
from p4reduce_lab.papers.inceptionn.codec import Bytes, Floats, Inceptionn
from p4reduce_lab.papers.inceptionn.ring import MOST_RANKS, Hop, mean_over_ring

__all__ = ["RingState", "ring_hook"]

_HEAD_TAG, _BODY_TAG = 1, 2
FINISHED = "this RingState is finished: fix that on all ranks, wrap the module anew and make a new one"


class _Neighbours:
    """This rank and its neighbours in the ring of a process group on the CPU, such as gloo's."""

    def __init__(self, group: dist.ProcessGroup, codec: Inceptionn, timeout_s: float) -> None:
        """`timeout_s`: of the wait for a neighbour, in each hop."""
        self._group, self._codec, self._timeout = group, codec, timedelta(seconds=timeout_s)
        self.rank, self.world_size = group.rank(), group.size()
        self.bytes_sent = 0

    def run(self, steps: Generator[Hop, Bytes, Floats]) -> Floats:
        """Return what `steps` return. Raises CollectiveError when a neighbour cannot be reached in time."""
        try:
            hop = next(steps)
            while True:
                hop = steps.send(self._swap(hop))
        except StopIteration as finished:
            mean: Floats = finished.value
            return mean

    def _swap(self, hop: Hop) -> Bytes:
        following, before = (self.rank + 1) % self.world_size, (self.rank - 1) % self.world_size
        try:
            sent = [
                self._group.send([torch.from_numpy(part)], following, tag)
                for part, tag in ((hop.head, _HEAD_TAG), (hop.body, _BODY_TAG))
                if len(part)
            ]
            head = torch.empty(self._codec.head_bytes(hop.elements), dtype=torch.uint8)
            self._group.recv([head], before, _HEAD_TAG).wait(self._timeout)
            body = torch.empty(self._codec.body_bytes(head.numpy()), dtype=torch.uint8)
            if len(body):
                self._group.recv([body], before, _BODY_TAG).wait(self._timeout)
            for work in sent:
                work.wait(self._timeout)
        except RuntimeError as error:
            raise CollectiveError(
                f"the ring broke between rank {self.rank} and rank {before} or {following}: {error}; start all anew"
            ) from error
        self.bytes_sent += len(hop.head) + len(hop.body)
        return np.concatenate([head.numpy(), body.numpy()])


class RingState:
    """What the hook keeps between buckets: the neighbours in the ring, and the queue of buckets that go round.

    Make it on all ranks at the same place: they compare their codecs' settings. The first error ends the state; a NaN
    or an infinity on one rank is an error on all ranks, in the same bucket.
    """

    def __init__(
        self,
        codec: Inceptionn,
        *,
        process_group: dist.ProcessGroup | None = None,
        timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    ) -> None:
        """`process_group`: the model's, for tensors on the CPU; default: the default one. `timeout_s`: of each hop.

        Raises CollectiveError when the ranks' codecs have different settings.
        """
        group = dist.group.WORLD if process_group is None else process_group
        if group is None:
            raise ValueError("no process group: call torch.distributed.init_process_group first")
        if group.size() > MOST_RANKS:
            raise ValueError(f"{group.size()} ranks: a ring has at most {MOST_RANKS}")
        self.codec = codec
        self.error: BaseException | None = None
        """What the first failed bucket raised; every later one raises it again."""
        self._neighbours = _Neighbours(group, codec, timeout_seconds(timeout_s))
        self._compare_settings(group)
        self._closed = False
        self._queue = CollectiveQueue("p4reduce-ring")
        self._pending: CollectiveFuture[None] | None = None
        """Of the last bucket handed in."""

    @property
    def bytes_sent(self) -> int:
        """The bytes that this rank has sent to the next one so far, without the network's headers."""
        return self._neighbours.bytes_sent

    def reduce(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Start the mean of a bucket in the background; the future gives it. With the last bucket, wait for all."""
        if self._closed:
            raise CommunicatorClosedError("this RingState was closed: register a new one with a model wrapped anew")
        if self.error is not None:
            raise self.error
        buffer, name, last = bucket.buffer(), f"gradient bucket {bucket.index()}", bucket.is_last()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self._pending = self._queue.submit(lambda: self._run(buffer, name, future))
        if last:
            self._pending.wait()
            if self.error is not None:
                raise self.error
        return future

    def close(self) -> None:
        """Return once the buckets handed in are done, and take no further ones."""
        self._closed = True
        if self._pending is not None:
            self._pending.wait()

    def _run(self, buffer: torch.Tensor, name: str, future: torch.futures.Future[torch.Tensor]) -> None:
        try:
            if self.error is not None:
                raise self.error
            if buffer.dtype != torch.float32 or buffer.device.type != "cpu":
                raise InvalidTensorError(
                    f"{name} is {buffer.dtype} on {buffer.device}; the ring takes float32 on the CPU"
                )
            ring = self._neighbours
            flat = buffer.detach().reshape(-1).contiguous().numpy()
            mean = ring.run(mean_over_ring(flat, ring.rank, ring.world_size, self.codec, name))
            with torch.no_grad():
                buffer.copy_(torch.from_numpy(mean).view_as(buffer))
        except BaseException as error:
            if self.error is None:
                error.add_note(FINISHED)
                self.error = error
            future.set_exception(error)  # type: ignore[arg-type]  # torch types it as the value
        else:
            future.set_result(buffer)

    def _compare_settings(self, group: dist.ProcessGroup) -> None:
        digest = hashlib.sha256(self.codec.settings.encode()).digest()[:8]
        own = torch.from_numpy(np.frombuffer(digest, np.int64).copy())
        found = [torch.empty_like(own) for _ in range(group.size())]
        group.allgather([found], [own]).wait()
        others = [rank for rank, settings in enumerate(found) if not torch.equal(settings, own)]
        if others:
            raise CollectiveError(
                f"rank {group.rank()} encodes {self.codec.settings}, and ranks {others} do not: give them the same"
            )


def ring_hook(state: RingState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook: `model.register_comm_hook(state, ring_hook)`.

    Gives the mean of the bucket over all ranks, the same bits on every rank. Raises, in backward(), InvalidTensorError
    (a NaN or an infinity here), PeerRefusedError (another rank's) and CollectiveError (a neighbour that does not
    answer).
    """
    return state.reduce(bucket)
