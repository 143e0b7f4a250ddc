"""all-gather: each block belongs to one rank (codecs/raw.py says which), so the sums are copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import as_kind_of, to_numpy
from p4reduce.codecs.raw import RawSource, bytes_of, first_bytes
from p4reduce.protocol.call import CodecId, Kind
from p4reduce.session import Contribution, Session, Timeout

Rows = NDArray[np.uint8]
"""Every rank's bytes, [world_size, bytes]."""


def all_gather(session: Session, array: Any, *, timeout_s: Timeout | None) -> Any:
    def prepare() -> Contribution:
        given = to_numpy(array)

        def finish(rows: Rows) -> Any:
            stacked = np.ascontiguousarray(rows).reshape(-1).view(given.dtype)
            return as_kind_of(array, stacked.reshape(session.lease.world_size, *given.shape))

        return _contribution(session, bytes_of(given), given.nbytes, f"{given.dtype.str}{given.shape}", finish)

    return session.run(Kind.ALL_GATHER, prepare, timeout_s=timeout_s)


def all_gather_bytes(session: Session, data: bytes, *, timeout_s: Timeout | None) -> list[bytes]:
    """Two collectives: the lengths, then the bytes in ranges as long as the longest."""

    def prepare_length() -> Contribution:
        length = np.array([np.frombuffer(data, np.uint8).size], np.uint64)
        return _contribution(session, bytes_of(length), length.nbytes, "length of bytes", read_lengths)

    def read_lengths(rows: Rows) -> list[int]:
        return [int(length) for length in np.ascontiguousarray(rows).view(np.uint64)[:, 0]]

    def prepare_bytes() -> Contribution:
        return _contribution(session, np.frombuffer(data, np.uint8), max(lengths), "bytes", cut)

    def cut(rows: Rows) -> list[bytes]:
        return [row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)]

    lengths: list[int] = session.run(Kind.ALL_GATHER, prepare_length, timeout_s=timeout_s)
    gathered: list[bytes] = session.run(Kind.ALL_GATHER, prepare_bytes, timeout_s=timeout_s)
    return gathered


def _contribution(
    session: Session, mine: NDArray[np.uint8], size: int, layout: str, finish: Callable[[Rows], Any]
) -> Contribution:
    """This rank's bytes, `size` or fewer, among those of all ranks."""
    lease = session.lease
    return Contribution(
        RawSource(mine, lease.block_words, size, lease.rank, lease.world_size),
        codec=CodecId.RAW,
        elements=size,
        layout=layout,
        finish=lambda sums: finish(first_bytes(sums[0], size)),
    )
