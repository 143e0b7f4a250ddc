"""A tensor that is a part of a sum, and whose place in later sums others alike can take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any

from p4reduce.codecs.arrays import Tensor, to_numpy
from p4reduce.codecs.output import Output
from p4reduce.protocol.blocks import NO_WORDS, Array, Part


class SummedTensor(ABC):
    """A tensor, the part of a collective that it is bound to, and what the sum is written to."""

    _part: Part
    _dense: bool

    def __init__(self, values: Any, name: str | None, out: Any) -> None:
        """Raises InvalidTensorError for what has no array, and for an `out` that cannot hold the result."""
        self._given = values
        self.values = to_numpy(values, name or "the tensor")
        self._output: Output | None = None if out is None else Output(out, values, self.values)

    @property
    @abstractmethod
    def alike(self) -> Hashable:
        """Return what this has in common with those that can `take` its place."""

    @abstractmethod
    def _scan(self) -> None:
        """Set the part's data, and which of its blocks are sent. Raises InvalidTensorError for data without a sum."""

    def again(self, values: Tensor, array: Array, out: Tensor | None) -> None:
        """Take another tensor of the same type and shape, and what it is written to, after `release`; as `bind`.

        `array`: the memory of `values`, C-contiguous.
        """
        self._given, self.values = values, array
        self._output = None if out is None else Output(out, values, array, plain=True)
        self._scan()

    def take(self, other: SummedTensor) -> None:
        """Do as `again` with the tensor of one that is `alike`."""
        self._given, self.values, self._output = other._given, other.values, other._output
        self._scan()

    def release(self) -> None:
        """Let go of the tensor and its sum: others may take their place (`again`, `take`)."""
        self._given = self._output = self._part.make_room = None
        self.values = self._part.values = NO_WORDS
