"""The ring over a torch process group: each rank sends to the next and receives from the one before."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

from p4reduce.codecs.inceptionn import Bytes, Floats, Inceptionn
from p4reduce.errors import CollectiveError
from p4reduce.ring.schedule import Hop

_HEAD_TAG, _BODY_TAG = 1, 2


class Neighbours:
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
