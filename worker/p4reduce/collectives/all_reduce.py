"""all-reduce: every rank declares its non-zero blocks, all get their sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from p4reduce.codecs import Float32, Int32, Segment
from p4reduce.codecs.arrays import to_numpy
from p4reduce.errors import InvalidTensorError
from p4reduce.protocol.call import CodecId, Kind
from p4reduce.protocol.source import ConcatenatedBlocks
from p4reduce.session import Contribution, Session, Timeout


def all_reduce(
    session: Session, array: Any, *, out: Any, dense: bool, timeout_s: Timeout | None, name: str | None
) -> Any:
    lease = session.lease

    def prepare() -> Contribution:
        segment = _segment(array, name, out)
        return Contribution(
            segment.bind(lease.world_size, lease.block_words, dense),
            codec=segment.codec,
            elements=segment.elements,
            layout=f"{name}|{segment.layout}",
            finish=lambda sums: segment.wrap(sums[0]),
        )

    return session.run(Kind.ALL_REDUCE, prepare, timeout_s=timeout_s)


def _segment(array: Any, name: str | None, out: Any) -> Segment:
    """The tensor with the codec of its type; InvalidTensorError for another than float32 and int32."""
    dtype = to_numpy(array, name or "the tensor").dtype
    if dtype == np.float32:
        return Float32(array, name=name, out=out)
    if dtype == np.int32:
        return Int32(array, name=name, out=out)
    raise InvalidTensorError(f"{name or 'the tensor'} is {dtype}; all_reduce sums float32 and int32, convert it")


def all_reduce_segments(
    session: Session,
    segments: Sequence[Segment],
    *,
    dense: bool,
    expected_blocks: int | None,
    timeout_s: Timeout | None,
    name: str | None,
) -> list[Any]:
    lease = session.lease

    def prepare() -> Contribution:
        parts = [segment.bind(lease.world_size, lease.block_words, dense) for segment in segments]
        return Contribution(
            ConcatenatedBlocks(parts, lease.block_words),
            codec=CodecId.SEGMENTS,
            detail=len(segments) & 0xFF,
            elements=sum(segment.elements for segment in segments),
            layout=f"{name}|" + ",".join(segment.layout for segment in segments),
            expected_blocks=expected_blocks,
            finish=lambda sums: [segment.wrap(total) for segment, total in zip(segments, sums, strict=True)],
        )

    results: list[Any] = session.run(Kind.ALL_REDUCE, prepare, timeout_s=timeout_s)
    return results
