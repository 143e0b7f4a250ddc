"""DistributedDataParallel over a ring of hosts, for when no switch is there: no job, no controller.

    from p4reduce.ring import Inceptionn, RingState, ring_hook

    model = DistributedDataParallel(model)
    model.register_comm_hook(RingState(Inceptionn()), ring_hook)

The gradients pass through the process group that DistributedDataParallel has, shortened by the codec on every hop.
"""

# No `from __future__ import annotations` here: DistributedDataParallel compares the hook's annotations as
# objects.

import hashlib

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from p4reduce.codecs.inceptionn import Inceptionn
from p4reduce.collective_queue import CollectiveFuture, CollectiveQueue
from p4reduce.errors import CollectiveError, CommunicatorClosedError, InvalidTensorError
from p4reduce.ring.process_group import Neighbours
from p4reduce.ring.schedule import MOST_RANKS, mean_over_ring
from p4reduce.timeouts import DEFAULT_TIMEOUT_S, Timeout, timeout_seconds

__all__ = ["RingState", "ring_hook"]

FINISHED = "this RingState is finished: fix that on all ranks, wrap the module anew and make a new one"


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
        self._neighbours = Neighbours(group, codec, timeout_seconds(timeout_s))
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
