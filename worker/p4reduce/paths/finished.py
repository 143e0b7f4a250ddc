"""What a path returns for a collective that is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import Reason
from p4reduce.protocol.blocks import Words
from p4reduce.protocol.call import Call


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
