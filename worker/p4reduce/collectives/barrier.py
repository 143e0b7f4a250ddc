"""barrier: a collective in which nobody declares a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from p4reduce.protocol.call import Kind
from p4reduce.protocol.source import NoBlocks

if TYPE_CHECKING:
    from p4reduce.communicator import Communicator


def barrier(comm: Communicator, *, timeout_s: float | None) -> None:
    comm.run(Kind.BARRIER, NoBlocks(), timeout_s=timeout_s)
