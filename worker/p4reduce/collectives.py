"""What a rank contributes to each collective, and what it makes of the sums.

All collectives are the same sparse block sum: of all ranks' non-zero blocks (all-reduce), of the root's blocks
(broadcast), of blocks that each belong to one rank (all-gather), or of no blocks (barrier).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs import Int32, Segment
from p4reduce.codecs.arrays import FLOAT_NAMES, Tensor, as_kind_of, dtype_of, plain_array, to_numpy
from p4reduce.codecs.floats import Floats
from p4reduce.codecs.formats import FORMS
from p4reduce.codecs.raw import bytes_of, first_bytes, raw_blocks
from p4reduce.codecs.summed_tensor import SummedTensor
from p4reduce.errors import InvalidTensorError
from p4reduce.protocol.blocks import Array, Blocks
from p4reduce.protocol.call import HIGH_ROOT, Call
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.calls import CodecId, Kind

MOST_BYTES = 1 << 27
"""Bytes of tensors in one collective: fewer blocks of the smallest pipeline than a key can number, and whole blocks of
the largest one, so that cut tensors have the same blocks."""

Rows = NDArray[np.uint8]
"""Every rank's bytes, [world_size, bytes]."""


@dataclass
class Contribution:
    """This rank's part of a collective, and all that the ranks compare of it (protocol/call.py)."""

    kind: Kind
    blocks: Blocks
    codec: CodecId = CodecId.NONE
    detail: int = 0
    elements: int = 0
    layout: str = ""
    agreement: str = ""
    """Text that must be equal on all ranks too, and may differ from call to call."""
    few: bool = False
    """Whether few blocks are likely: the first call alike opens one slot, and slots split late."""
    single: bool = True
    """Whether the caller's result is that of the only part; else a list of all parts'."""
    number: int = 0
    """The number of the collective in its epoch."""
    segments: Sequence[SummedTensor] = ()
    """The tensors, where later calls alike can have this contribution."""
    key: Hashable = None
    """What later calls alike have in common with this one (`Plans`); None: it is not kept."""

    @functools.cached_property
    def kind_name(self) -> str:
        return self.kind.name.lower()

    def finish(self, results: list[Any]) -> Any:
        """Return the caller's result of the parts' results."""
        return results[0] if self.single else results

    @functools.cached_property
    def compared(self) -> tuple[int, int, int]:
        """The words of `call()` but its number."""
        _, *words = self.call().words(0)
        return words[0], words[1], words[2]

    def agree_on(self, agreement: str) -> None:
        """Set `agreement` for the next collective."""
        if agreement != self.agreement:
            self.agreement = agreement
            vars(self).pop("compared", None)

    @functools.cached_property
    def dense_bytes(self) -> int:
        """The bytes of the tensors that this rank sends, before zeros are left out and numbers are packed."""
        sums = self.kind is Kind.ALL_REDUCE
        return sum(part.values.nbytes for part in self.blocks.parts if sums or part.nonzero.any())

    @functools.cached_property
    def alike(self) -> Hashable:
        """Return the key that later calls like this one have in common with it."""
        return int(self.kind), int(self.codec), self.detail, self.elements, self.layout

    def call(self, slots: int | None = None, limit_s: float | None = None, *, window: int = 0) -> Call:
        """Return the descriptor of the collective; the ranks compare `slots` too, and `window` where it is larger."""
        layout = f"{self.layout}|{self.agreement}" + ("" if slots is None else f"|{slots}")
        layout += f" of {window}" if window > (slots or 0) else ""
        return Call(self.number, self.kind, self.codec, self.detail, self.elements, layout, limit_s)


def takes_several(array: Tensor, out: Tensor | None) -> bool:
    """Return whether a sum of a tensor takes several collectives; not where the first says what is wrong with it."""
    try:
        return array.nbytes > MOST_BYTES and (out is None or out.shape == array.shape)
    except (AttributeError, RuntimeError):  # it is no tensor, or sparse
        return False


def no_blocks(kind: Kind, detail: int = 0) -> Contribution:
    """Contribute no block: to a barrier, a close or, with the reason in `detail`, a refusal."""
    return Contribution(kind, Blocks(), detail=detail, single=False)


def new_array(shape: int | Sequence[int], dtype: Any) -> Array:
    """Return an array, not initialized. Raises InvalidTensorError for a type without numbers, and numpy's errors."""
    plain = np.empty(shape, dtype)
    if plain.dtype.kind not in "biufc":
        raise InvalidTensorError(f"dtype is {plain.dtype}; give float32, float16, int32 or other numbers")
    return plain


class Plans:
    """Contributions to sums, each for the next call alike; those used last, not while they are in use.

    For all threads: what one takes, no other has.
    """

    MOST: Final = 256
    MOST_BLOCKS: Final = 1 << 22
    """The number of blocks of all that are kept: each takes some bytes."""

    def __init__(self) -> None:
        self.kept: dict[Hashable, Contribution] = {}
        """Contributions by what calls alike have in common, the least recent first. Who takes one removes it, and gives
        it back when its collective has ended."""

    def make_room(self) -> None:
        """Forget the least recent ones, where there are MOST, or more than MOST_BLOCKS."""
        kept = [*self.kept.items()]  # a copy: another thread may take one
        blocks = sum(contribution.blocks.n_blocks for _, contribution in kept)
        for number, (key, contribution) in enumerate(kept):
            if len(kept) - number < self.MOST and blocks <= self.MOST_BLOCKS:
                break
            self.kept.pop(key, None)
            blocks -= contribution.blocks.n_blocks

    def give_back(self, contribution: Contribution) -> None:
        """Keep a contribution whose collective has ended for the next call alike, without its tensors."""
        if contribution.key is not None:
            for segment in contribution.segments:
                segment.release()
            self.kept[contribution.key] = contribution


def all_reduce(
    plans: Plans,
    lease: Lease,
    array: Tensor,
    out: Tensor | None,
    bits: int | None = None,
    refuse_underflow: bool = False,
) -> Contribution:
    """Contribute the non-zero blocks of a tensor. Raises InvalidTensorError for a type that is not summed."""
    plain = plain_array(array)
    key = None if plain is None else (array.dtype, array.shape, bits, refuse_underflow)
    if plain is not None and (known := plans.kept.pop(key, None)) is not None:
        known.segments[0].again(array, plain, out)
        return known
    plans.make_room()
    dtype = dtype_of(array)
    segment: Floats | Int32
    if dtype in FORMS:
        segment = Floats(array, bits, out=out, refuse_underflow=refuse_underflow)
    elif dtype == np.int32 and bits is None:
        segment = Int32(array, out=out)
    elif dtype == np.int32:
        raise InvalidTensorError("the tensor is int32, which is summed exactly: give no bits")
    else:
        raise InvalidTensorError(f"the tensor is {dtype}; all_reduce sums int32, {FLOAT_NAMES}: convert it")
    return Contribution(
        Kind.ALL_REDUCE,
        segment.bind(lease.world_size, lease.block_words, False),
        codec=segment.codec,
        detail=segment.detail,
        elements=segment.elements,
        layout=segment.layout,
        segments=(segment,),
        key=key,
    )


def all_reduce_segments(  # noqa: PLR0917
    plans: Plans, lease: Lease, segments: Sequence[Segment], dense: bool, name: str | None, agreement: str
) -> Contribution:
    """Contribute several tensors, each in its own codec."""
    tensors, key = [segment for segment in segments if isinstance(segment, SummedTensor)], None
    if len(tensors) == len(segments):
        key = (dense, name, *(segment.alike for segment in tensors))
        if (known := plans.kept.pop(key, None)) is not None:
            for kept, segment in zip(known.segments, tensors, strict=True):
                kept.take(segment)
            known.agree_on(agreement)
            return known
        plans.make_room()
        segments = tensors = [copy.copy(segment) for segment in tensors]  # the caller may use its own again
    bound = [segment.bind(lease.world_size, lease.block_words, dense) for segment in segments]
    return Contribution(
        Kind.ALL_REDUCE,
        Blocks([part for blocks in bound for part in blocks.parts]),
        codec=CodecId.SEGMENTS,
        detail=len(segments) & 0xFF,
        elements=sum(segment.elements for segment in segments),
        layout=f"{name}|" + ",".join(segment.layout for segment in segments),
        agreement=agreement,
        few=name is not None,
        single=False,
        segments=tensors,
        key=key,
    )


def broadcast(lease: Lease, array: Tensor, root: int) -> Contribution:
    """Contribute the tensor on the root, and no block elsewhere. Raises InvalidTensorError for no rank as root."""
    if not 0 <= root < lease.world_size:
        raise InvalidTensorError(f"root {root} is not a rank of this job; ranks are 0 to {lease.world_size - 1}")
    given = to_numpy(array)

    def finish(row: NDArray[np.uint8]) -> Tensor:
        return as_kind_of(array, row.view(given.dtype).reshape(given.shape))

    mine = bytes_of(given) if lease.rank == root else None
    layout = f"{given.dtype.str}{given.shape}" + (f" from {root}" if root >= HIGH_ROOT else "")
    return broadcast_bytes(lease, mine, given.nbytes, root, layout, finish)


def broadcast_bytes(  # noqa: PLR0917
    lease: Lease,
    data: NDArray[np.uint8] | None,
    size: int,
    root: int,
    layout: str,
    finish: Callable[[NDArray[np.uint8]], Any],
) -> Contribution:
    """Contribute `size` bytes or fewer on the root, which has `data`, and no block elsewhere.

    `finish` makes the result of the root's bytes, [size].
    """
    mine, sender = (np.zeros(0, np.uint8), None) if data is None else (data, 0)
    return Contribution(
        Kind.BROADCAST,
        raw_blocks(mine, lease.block_words, size, sender, finish=lambda rows: finish(first_bytes(rows, size)[0])),
        codec=CodecId.RAW,
        detail=min(root, HIGH_ROOT),
        elements=size,
        layout=layout,
    )


def all_gather(lease: Lease, array: Tensor) -> Contribution:
    """Contribute the tensor in this rank's range of blocks."""
    given = to_numpy(array)

    def finish(rows: Rows) -> Tensor:
        stacked = np.ascontiguousarray(rows).reshape(-1).view(given.dtype)
        return as_kind_of(array, stacked.reshape(lease.world_size, *given.shape))

    return gather_bytes(lease, bytes_of(given), given.nbytes, f"{given.dtype.str}{given.shape}", finish)


def all_gather_length(lease: Lease, data: bytes) -> Contribution:
    """Contribute the number of bytes in `data`; the result is every rank's."""
    length = np.array([np.frombuffer(data, np.uint8).size], np.uint64)

    def finish(rows: Rows) -> list[int]:
        return [int(length) for length in np.ascontiguousarray(rows).view(np.uint64)[:, 0]]

    return gather_bytes(lease, bytes_of(length), length.nbytes, "length of bytes", finish)


def all_gather_bytes(lease: Lease, data: bytes, lengths: Sequence[int]) -> Contribution:
    """Contribute `data` in a range as long as the longest of all ranks' `lengths`."""

    def finish(rows: Rows) -> list[bytes]:
        return [row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)]

    return gather_bytes(lease, np.frombuffer(data, np.uint8), max(lengths), "bytes", finish)


def gather_bytes(
    lease: Lease, mine: NDArray[np.uint8], size: int, layout: str, finish: Callable[[Rows], Any]
) -> Contribution:
    """Contribute `size` bytes or fewer in this rank's range of blocks (codecs/raw.py).

    `finish` makes the result of all ranks' bytes, [world_size, size].
    """

    def of_size(rows: Rows) -> Any:
        return finish(first_bytes(rows, size))

    return Contribution(
        Kind.ALL_GATHER,
        raw_blocks(mine, lease.block_words, size, lease.rank, lease.world_size, of_size),
        codec=CodecId.RAW,
        elements=size,
        layout=layout,
    )
