"""all-gather: each block belongs to one rank (codecs/raw.py says which), so the sums are copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import like, to_numpy
from p4reduce.codecs.raw import RawSource, bytes_of, first_bytes
from p4reduce.protocol.call import CodecId, Kind
from p4reduce.session import Session


def all_gather(session: Session, array: Any, *, timeout_s: float | None) -> Any:
    given = to_numpy(array)
    rows = _gather(session, bytes_of(given), given.nbytes, f"{given.dtype.str}{given.shape}", timeout_s)
    stacked = np.ascontiguousarray(rows).reshape(-1).view(given.dtype)
    return like(array, stacked.reshape(session.lease.world_size, *given.shape))


def all_gather_bytes(session: Session, data: bytes, *, timeout_s: float | None) -> list[bytes]:
    """Two collectives: the lengths, then the bytes in ranges as long as the longest."""
    lengths = all_gather(session, np.array([len(data)], np.uint64), timeout_s=timeout_s)
    sizes = [int(size) for size in lengths[:, 0]]
    rows = _gather(session, np.frombuffer(data, np.uint8), max(sizes), "bytes", timeout_s)
    return [row[:size].tobytes() for row, size in zip(rows, sizes, strict=True)]


def _gather(
    session: Session, mine: NDArray[np.uint8], size: int, layout: str, timeout_s: float | None
) -> NDArray[np.uint8]:
    """[world_size, size] bytes; `mine` may be shorter than `size`."""
    (data,) = session.run(
        Kind.ALL_GATHER,
        RawSource(mine, session.lease.block_words, size, session.lease.rank, session.lease.world_size),
        codec=CodecId.RAW,
        elements=size,
        layout=layout,
        timeout_s=timeout_s,
    )
    return first_bytes(data, size)
