"""all-reduce: every rank declares its non-zero blocks, all get their sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from p4reduce.codecs import Float32, Int32, Segment
from p4reduce.codecs.arrays import to_numpy
from p4reduce.errors import InvalidTensor
from p4reduce.protocol.call import CodecId, Kind
from p4reduce.protocol.source import ConcatenatedBlocks
from p4reduce.session import Session


def all_reduce(
    session: Session, array: Any, *, dense: bool, timeout_s: float | None, name: str | None
) -> Any:
    dtype = to_numpy(array, name or "the tensor").dtype
    if dtype == np.float32:
        segment: Segment = Float32(array, name=name)
    elif dtype == np.int32:
        segment = Int32(array, name=name)
    else:
        raise InvalidTensor(
            f"{name or 'the tensor'} is {dtype}; all_reduce sums float32 and int32, convert it"
        )
    (result,) = session.run(
        Kind.ALL_REDUCE,
        segment.bind(session.lease.world_size, session.lease.block_words, dense),
        codec=segment.codec,
        elements=segment.elements,
        layout=f"{name}|{segment.layout}",
        timeout_s=timeout_s,
    )
    return segment.wrap(result)


def all_reduce_segments(
    session: Session,
    segments: Sequence[Segment],
    *,
    dense: bool,
    expected_blocks: int | None,
    timeout_s: float | None,
    name: str | None,
) -> list[Any]:
    block_words = session.lease.block_words
    parts = [segment.bind(session.lease.world_size, block_words, dense) for segment in segments]
    results = session.run(
        Kind.ALL_REDUCE,
        ConcatenatedBlocks(parts, block_words),
        codec=CodecId.SEGMENTS,
        detail=len(segments) & 0xFF,
        elements=sum(segment.elements for segment in segments),
        layout=f"{name}|" + ",".join(segment.layout for segment in segments),
        expected_blocks=expected_blocks,
        timeout_s=timeout_s,
    )
    return [segment.wrap(result) for segment, result in zip(segments, results, strict=True)]
