"""Sums of tensors over the switch, by dtype.

float32 and int32 travel as they are. float16 and bfloat16 are summed as float32 and rounded once, complex64 as pairs of
float32. AVG is the sum divided by the number of ranks before the last rounding; of integers it is cut towards zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from p4reduce.codecs import Float32, Int32, Segment

if TYPE_CHECKING:
    from p4reduce.communicator import Communicator

DTYPES: Final = frozenset({torch.float32, torch.int32, torch.float16, torch.bfloat16, torch.complex64})
"""What the switch can sum."""


def all_reduce(comm: Communicator, tensors: Sequence[torch.Tensor], *, average: bool, timeout_s: float) -> None:
    """Write the sums over all ranks into `tensors`, from one collective; after an error they are as they were."""
    whole = len(tensors) == 1 and not average
    given = [_as_words(tensor.detach()) for tensor in tensors]
    if whole:
        sums = [comm.all_reduce(given[0], timeout_s=timeout_s)]
    else:
        segments = [_segment(tensor, average) for tensor in given]
        sums = comm.all_reduce_segments(segments, timeout_s=timeout_s)
    for tensor, total in zip(tensors, sums, strict=True):
        if average and tensor.dtype == torch.int32:
            total = torch.div(total, comm.world_size, rounding_mode="trunc")
        if tensor.dtype == torch.complex64:
            total = torch.view_as_complex(total.reshape(*tensor.shape, 2))
        tensor.detach().copy_(total.reshape(tensor.shape))


def _as_words(tensor: torch.Tensor) -> torch.Tensor:
    """Return the numbers as float32 or int32."""
    if tensor.dtype == torch.complex64:
        return torch.view_as_real(tensor.resolve_conj()).contiguous()
    return tensor if tensor.dtype == torch.int32 else tensor.float()


def _segment(tensor: torch.Tensor, average: bool) -> Segment:
    made: Any = Int32(tensor) if tensor.dtype == torch.int32 else Float32(tensor, mean=average)
    segment: Segment = made
    return segment
