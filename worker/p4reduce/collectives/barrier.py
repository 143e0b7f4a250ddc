"""barrier: a collective in which nobody declares a block."""

from __future__ import annotations

from p4reduce.protocol.call import Kind
from p4reduce.protocol.source import NoBlocks
from p4reduce.session import Contribution, Session, Timeout


def barrier(session: Session, *, timeout_s: Timeout | None) -> None:
    session.run(Kind.BARRIER, lambda: Contribution(NoBlocks()), timeout_s=timeout_s)
