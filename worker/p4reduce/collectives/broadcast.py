"""broadcast: only the root declares blocks, so the sum is the root's data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import as_kind_of, to_numpy
from p4reduce.codecs.raw import RawSource, bytes_of, first_bytes
from p4reduce.errors import InvalidTensorError
from p4reduce.protocol.call import CodecId, Kind
from p4reduce.session import Contribution, Session, Timeout


def broadcast(session: Session, array: Any, root: int, *, timeout_s: Timeout | None) -> Any:
    lease = session.lease

    def prepare() -> Contribution:
        if not 0 <= root < lease.world_size:
            raise InvalidTensorError(f"root {root} is not a rank of this job; ranks are 0 to {lease.world_size - 1}")
        given = to_numpy(array)

        def finish(sums: list[NDArray[Any]]) -> Any:
            return as_kind_of(array, first_bytes(sums[0], given.nbytes)[0].view(given.dtype).reshape(given.shape))

        mine = bytes_of(given) if lease.rank == root else np.zeros(0, np.uint8)
        return Contribution(
            RawSource(mine, lease.block_words, given.nbytes, 0 if lease.rank == root else None),
            codec=CodecId.RAW,
            detail=root,
            elements=given.nbytes,
            layout=f"{given.dtype.str}{given.shape}",
            finish=finish,
        )

    return session.run(Kind.BROADCAST, prepare, timeout_s=timeout_s)
