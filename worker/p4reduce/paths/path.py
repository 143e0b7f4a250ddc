"""A path of collectives: over the switch (switch.py), in the memory of a host (hosts/memory_path.py)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from p4reduce.collectives import Contribution
from p4reduce.epoch import of_rank
from p4reduce.errors import P4ReduceError, Reason
from p4reduce.protocol.blocks import Words
from p4reduce.protocol.call import Call
from p4reduce.protocol.deadline import Deadline
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.answers import WaitingSlot
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


class Path(Protocol):
    """What sums the contributions of one epoch's ranks, one collective at a time."""

    lease: Lease
    total: CollectiveStats
    """The counts of all collectives, also of those that failed."""
    keep_words: bool
    """Whether collectives have `sums`."""
    at_wait: Callable[[], None] | None
    """A function that is called with each log line of a collective that waits; does not raise."""

    @property
    def in_memory(self) -> bool:
        """Whether it sums in the memory of the host that has all ranks."""
        ...

    @property
    def least_host_bytes(self) -> int:
        """The size of the smallest tensor that is summed over hosts."""
        ...

    def run(self, contribution: Contribution, deadline: Deadline, lost: Lost) -> FinishedCollective:
        """Take part in a collective until it is done. Raises CollectiveError, and what `lost` returns."""
        ...

    def waiting(self) -> WaitingSlot | None:
        """Return what the running collective waits for; None if there is none. May be called from any thread."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return what is measured of the network, by the names in `p4reduce_runtime.metrics`."""
        ...

    def close(self, *, idle: bool = True, finished: bool = True) -> None:
        """Give back what it holds; `idle`: no collective runs. `finished`: all ranks have called their last one."""
        ...


def log_refused(lease: Lease, collective: FinishedCollective) -> None:
    """Log which ranks refused a collective."""
    # that sums underflow is said once (pytorch/refused_sums.py): each one of a script may
    level = logging.DEBUG if set(collective.refusals.values()) == {Reason.UNDERFLOW} else logging.INFO
    by_ranks = ",".join(map(str, sorted(collective.refusals)))
    event(_log, level, "collective refused", **of_rank(lease), call=str(collective.call), by_ranks=by_ranks)
