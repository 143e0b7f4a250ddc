"""Records: the data types that their declarations give."""

from __future__ import annotations

from types import GenericAlias
from typing import Annotated, Any

import numpy as np

from p4reduce_runtime.records import Record, dtype_of

BEFORE_2_5 = GenericAlias(np.ndarray, (Any, GenericAlias(np.dtype, (np.int16,))))
FROM_2_5 = GenericAlias(np.ndarray, (np.int16,))
"""The value of NDArray[np.int16], in the arguments that tell its element, by numpy's version."""


class Fields(Record):
    number: int
    small: Annotated[int, np.uint16]
    old: Annotated[BEFORE_2_5, 3]
    new: Annotated[FROM_2_5, 3]


def test_fields_have_the_types_and_lengths_that_are_declared() -> None:
    declared = [("number", "i8"), ("small", "u2"), ("old", "i2", 3), ("new", "i2", 3)]
    assert dtype_of(Fields) == np.dtype(declared, align=True)
