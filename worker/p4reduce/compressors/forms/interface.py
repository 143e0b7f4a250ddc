"""The interface of a wire form: messages that are exchanged in pieces of collectives.

`exchange.py` uses nothing more of a form than this:

    message.exchange(...)  yields a piece for a collective, receives its answer, may yield one for a second
                           collective, and returns the answer to the message
    Piece                  one parameter's piece of a segment; pieces of equal `segment_key` share one
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

from p4reduce.codecs import Segment
from p4reduce.group import Group


class Piece(ABC):
    """What one parameter puts into a segment of a collective."""

    order: ClassVar[int]
    """A collective has its segments by rising order, and those of equal order as they were added."""

    @property
    def segment_key(self) -> Hashable:
        """Equal for the pieces that share a segment."""
        return type(self)

    @classmethod
    @abstractmethod
    def segment(cls, pieces: Mapping[str, Self], owner: str, group: Group) -> Segment:
        """Join these pieces, by parameter, to a segment. `owner` is the compressor's name, for error messages."""

    @classmethod
    @abstractmethod
    def answers(cls, pieces: Sequence[Self], result: Any, group: Group) -> list[Any]:
        """Cut the answer to each piece from the segment's result."""


MessageExchange = Generator[Piece, Any, Any]
"""The exchange of one message: yields pieces, receives their answers, returns the answer to the message."""


class Message(Protocol):
    """What a rank sends of one parameter."""

    def exchange(self, owner: str, group: Group) -> MessageExchange:
        """Exchange this message in one collective or two. `owner` is the compressor's name, for error messages."""
        ...
