"""What a path takes and returns; switch.py is the one over the switch, hosts/path.py the one over hosts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from p4reduce.epoch import of_rank
from p4reduce.errors import P4ReduceError, Reason
from p4reduce.protocol.blocks import Words
from p4reduce.protocol.call import Call
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_runtime.logs import event

_log = logging.getLogger(__name__)

Lost = Callable[[], P4ReduceError | None]
"""A function that returns why a running collective cannot be finished, if it cannot."""


class FinishedCollective(Protocol):
    """A collective that is done; the same on all ranks."""

    @property
    def call(self) -> Call: ...

    @property
    def refusals(self) -> Mapping[int, Reason]:
        """The ranks that could not take part, and why; with any, there is no result."""
        ...

    @property
    def agreed_exponents(self) -> NDArray[np.uint8]:
        """[blocks]: the exponent agreed for each block."""
        ...

    @property
    def sums(self) -> Words:
        """[blocks, block_words]: the words as summed, of either byte order."""
        ...

    def result(self) -> list[Any]:
        """Return the summed tensors."""
        ...


def log_refused(lease: Lease, collective: FinishedCollective) -> None:
    """Log which ranks refused a collective."""
    # that sums underflow is said once (pytorch/settle.py): each one of a script may
    level = logging.DEBUG if set(collective.refusals.values()) == {Reason.UNDERFLOW} else logging.INFO
    by_ranks = ",".join(map(str, sorted(collective.refusals)))
    event(_log, level, "collective refused", **of_rank(lease), call=str(collective.call), by_ranks=by_ranks)
