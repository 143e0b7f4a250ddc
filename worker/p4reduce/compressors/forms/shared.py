"""The form shared: the leader's choice of elements is sent once, then all ranks' values there are summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from p4reduce.codecs import coordinates
from p4reduce.codecs.coordinates import Part
from p4reduce.compressors.forms.gather import Bytes, CoordinatesPiece
from p4reduce.compressors.forms.interface import Blocks, MessageExchange, WireForm
from p4reduce.compressors.forms.sum import ValuesPiece
from p4reduce.group import Group


@dataclass(frozen=True)
class Support:
    """The leader's choice of elements, and this rank's values at them. The answer is an AtSupport."""

    data: Bytes  #: on the leader the encoded choice, no bytes elsewhere
    part: Part  #: its sender is the leader
    values: torch.Tensor  #: float32 [elements]: those at the choice are sent
    bits: int  #: 8, 16 or 32, of a value

    def exchange(self, owner: str, group: Group) -> MessageExchange:
        choice = yield CoordinatesPiece(self.data, self.part)
        indices = torch.from_numpy(choice.indices)
        summed = yield ValuesPiece(self.values[indices], self.bits)
        return AtSupport(indices, summed.total, summed.sent)


class AtSupport(NamedTuple):
    """The result at the elements that the leader chose."""

    indices: torch.Tensor  #: int64 [chosen]
    mean: torch.Tensor  #: over the ranks, float32 [chosen]
    sent: torch.Tensor  #: of this rank's own values, as they were rounded, float32 [chosen]


class SharedForm(WireForm):
    """Coordinates in the first collective and values in the second: about half of the bytes each."""

    second: ClassVar[str | None] = "values at the leaders' choice"

    def add_blocks(self, blocks: Blocks, payloads: Sequence[float], group: Group) -> Blocks:
        together = 0.0
        for payload in payloads:
            together += payload
        half = together / (8 * group.block_words)
        # What is sent of each parameter in the second begins with a block of its own.
        return Blocks(blocks.first + half + 1 / 2, (blocks.second or 0.0) + half + len(payloads) / 2)


def payload_bytes(chosen: float, bin_length: int, value_bits: int) -> float:
    """Return the bytes down of one parameter of which `chosen` elements are sent."""
    return coordinates.STREAM_HEADER_BYTES + chosen * (coordinates.entry_bytes(bin_length) + value_bits / 8)
