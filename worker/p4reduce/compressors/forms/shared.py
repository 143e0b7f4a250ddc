"""The form shared: the leader's choice of elements is sent once, then all ranks' values there are summed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from p4reduce.codecs.coordinates import Part
from p4reduce.compressors.forms.gather import Bytes, CoordinatesPiece
from p4reduce.compressors.forms.interface import MessageExchange
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
