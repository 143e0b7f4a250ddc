"""broadcast: only the root declares blocks, so the sum is the root's data."""

from __future__ import annotations

from typing import Any

import numpy as np

from p4reduce.codecs.arrays import like, to_numpy
from p4reduce.codecs.raw import RawSource, bytes_of, first_bytes
from p4reduce.errors import InvalidTensor
from p4reduce.protocol.call import CodecId, Kind
from p4reduce.session import Session


def broadcast(session: Session, array: Any, root: int, *, timeout_s: float | None) -> Any:
    if not 0 <= root < session.lease.world_size:
        raise InvalidTensor(f"root {root} is not a rank of this job; ranks are 0 to {session.lease.world_size - 1}")
    given = to_numpy(array)
    mine = bytes_of(given) if session.lease.rank == root else np.zeros(0, np.uint8)
    (data,) = session.run(
        Kind.BROADCAST,
        RawSource(mine, session.lease.block_words, given.nbytes, 0 if session.lease.rank == root else None),
        codec=CodecId.RAW,
        detail=root,
        elements=given.nbytes,
        layout=f"{given.dtype.str}{given.shape}",
        timeout_s=timeout_s,
    )
    return like(array, first_bytes(data, given.nbytes)[0].view(given.dtype).reshape(given.shape))
