"""The interface of a wire form: messages that are exchanged in pieces of collectives, and the pieces' cost.

`exchange.py` uses nothing more of a form than this:

    message.exchange(...)  yields a piece for a collective, receives its answer, may yield one for a second
                           collective, and returns the answer to the message
    Piece                  one parameter's piece of a segment; pieces of equal `segment_key` share one
    WireForm               what a bucket's parameters in this form add to the blocks of the two collectives
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Hashable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self

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


class Blocks(NamedTuple):
    """How many blocks the union of all ranks has, in a bucket's first collective and in its second."""

    first: float
    second: float | None = None  #: None: there is no second


class WireForm(ABC):
    """The cost of a form, and when it can be chosen."""

    second: ClassVar[str | None] = None
    """What its second collective is for; None: it takes only one."""
    for_first_steps: ClassVar[bool] = False
    """Whether it needs nothing of earlier steps: then a parameter's first step goes in it."""

    @abstractmethod
    def add_blocks(self, blocks: Blocks, payloads: Sequence[float], group: Group) -> Blocks:
        """Return `blocks` with those of this form's parameters, whose payloads down are given in bytes."""
