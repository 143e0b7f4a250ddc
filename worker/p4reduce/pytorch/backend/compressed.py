"""Sums of the backend that a compressor sends: what it keeps back of a tensor is added where that comes again.

A process group sees tensors without names, and FSDP's are other ones in each step. So a call is known by its place
among the calls of a step, its collective, and the sizes and types of its tensors, which are equal on all ranks. It is
compressed if the call at its place in the step before was the same one, and so were all before it; else it is sent in
full, as is all of the first step.

A step ends when an optimizer has made its step (torch.optim.Optimizer, whose hooks tell). An optimizer that makes it
within the backward pass, for each parameter, does not end the step before the pass is over.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from p4reduce.codecs.arrays import float_dtypes
from p4reduce.compressors import Compressor
from p4reduce.compressors.all_reduce import begin
from p4reduce.pytorch.recommend import warn_of_first_moment

if TYPE_CHECKING:
    from p4reduce.communicator import Communicator

LONGEST_STEP: Final = 10_000
"""Calls; where no optimizer of torch ends a step, their list must not grow forever."""

_log = logging.getLogger(__name__)


class CompressedSums:
    """The compressed sums of one process group on this rank. All ranks make the same calls in the same order."""

    def __init__(self, compressor: Compressor, least_bytes: int, group: str = "") -> None:
        """`least_bytes`: fewer are sent in full. `group`: its name, where it shares the compressor with others."""
        self.compressor = compressor
        self._least_bytes = least_bytes
        self._group = group
        self._before: list[str] = []
        """The calls of the last step."""
        self._calls: list[str] = []
        """The calls of this step."""
        self._known = False
        """Whether this step's calls so far are those of the last one."""
        self._warned = False
        self._pass = -1
        self._stepped = False
        warn_of_first_moment(compressor)
        _groups.add(self)

    def names(self, collective: str, tensors: Sequence[torch.Tensor]) -> list[str]:
        """Return the names of these tensors for `means`, of the next call; none where it is sent in full.

        For the thread that calls the collective.
        """
        sizes = [tensor.numel() for tensor in tensors]
        total = sum(size * tensor.element_size() for size, tensor in zip(sizes, tensors, strict=True))
        summed = all(tensor.dtype in float_dtypes() for tensor in tensors)
        if total < self._least_bytes or min(sizes) == 0 or not summed:
            return []
        of_pass = torch._C._current_graph_task_id()  # -1 outside of a backward pass
        if self._stepped and (of_pass == -1 or of_pass != self._pass):
            self._begin_step()
        self._pass = of_pass
        place = len(self._calls)
        if place == LONGEST_STEP:
            self._warn(f"{place} sums came without a step of an optimizer of torch.optim")
            return []
        call = f"{collective} of {', '.join(f'{t.numel()} {t.dtype}' for t in tensors)}"
        self._calls.append(call)
        if self._known and self._before[place : place + 1] != [call]:
            self._known = False
            self._warn(f"sum {place} of this step, {call}, is not that of the step before")
        return [f"{self._group}{place}.{number} {call}" for number in range(len(tensors))] if self._known else []

    def means(
        self, comm: Communicator, names: Sequence[str], tensors: Sequence[torch.Tensor], timeout_s: float
    ) -> list[torch.Tensor]:
        """Return the mean over all ranks of each tensor, float32 in its shape; the tensors are only read.

        Raises as `all_reduce_compressed` does, but refuses nothing itself: that is for the caller.
        """
        # A tensor of the backend has parameters of several layers in one row: for a policy a linear layer.
        rows = {name: tensor.detach().float().reshape(1, -1) for name, tensor in zip(names, tensors, strict=True)}
        size = 4 * sum(row.numel() for row in rows.values())
        with torch.no_grad():
            outcome, _ = begin(comm, self.compressor, rows, size=size, timeout_s=timeout_s).finish()
        return [outcome.means[name].reshape(tensor.shape) for name, tensor in zip(names, tensors, strict=True)]

    def end_step(self) -> None:
        """Let the next call begin a step, unless it belongs to the same backward pass as the last one."""
        self._stepped = True

    def begin_anew(self) -> None:
        """Begin as a new group does, without residues: other ranks may have none."""
        self.compressor.forget()
        self._before, self._calls, self._known, self._pass, self._stepped = [], [], False, -1, False

    def _begin_step(self) -> None:
        if self._calls:  # a second optimizer's step
            self._before, self._calls, self._known = self._calls, [], True
        self._stepped = False

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("%s: the rest is sent without %s, as in later such steps", what, self.compressor.name)


_groups: weakref.WeakSet[CompressedSums] = weakref.WeakSet()


def _end_step(_optimizer: torch.optim.Optimizer, _arguments: Any, _keywords: Any) -> None:
    for sums in list(_groups):
        sums.end_step()


register_optimizer_step_post_hook(_end_step)
