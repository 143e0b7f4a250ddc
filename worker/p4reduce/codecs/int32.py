"""int32: summed exactly modulo 2^32, as numpy's own int32 addition does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import Tensor, as_kind_of, name_element, to_numpy
from p4reduce.codecs.output import Output
from p4reduce.codecs.words import WordSource
from p4reduce.errors import IntegerOverflowError, InvalidTensorError
from p4reduce.protocol.call import CodecId
from p4reduce.protocol.source import Array


class Int32:
    """A tensor of int32. The sum wraps modulo 2^32, unless `refuse_overflow`.

    With `refuse_overflow`, IntegerOverflowError is raised before anything is sent if world size x
    the largest |x| of this rank does not fit an int32: when no rank refuses, no sum can wrap. The sum is written to
    `out`, where there is one.
    """

    codec = CodecId.INT32
    detail = 0

    def __init__(
        self, values: Tensor, *, refuse_overflow: bool = False, name: str | None = None, out: Tensor | None = None
    ) -> None:
        self._given = values
        self.values = to_numpy(values, name or "the tensor")
        if self.values.dtype != np.int32:
            raise InvalidTensorError(f"{name or 'the tensor'} is {self.values.dtype}; convert it to int32")
        self._output = None if out is None else Output(out, values, self.values)
        self._refuse_overflow = refuse_overflow
        self._name = name
        self.elements = self.values.size
        self.layout = f"int32[{self.elements}]"

    def bind(self, world_size: int, block_words: int, dense: bool) -> WordSource:
        flat = self.values.reshape(-1)
        if self._refuse_overflow and flat.size:
            self._check(flat, world_size)
        return WordSource(flat.view(np.uint32), block_words, dense, self._finish)

    def _check(self, flat: NDArray[np.int32], world_size: int) -> None:
        sizes = np.abs(flat.astype(np.int64))
        worst = int(sizes.argmax())
        if world_size * int(sizes[worst]) > 2**31 - 1:
            raise IntegerOverflowError(
                f"{name_element(self._name, self.values.shape, worst)} is {flat[worst]}: the sum of {world_size} "
                f"ranks could leave int32; keep |x| <= {(2**31 - 1) // world_size}"
            )

    def _finish(self, words: NDArray[np.uint32]) -> NDArray[np.int32]:
        return words.view(np.int32).reshape(self.values.shape)

    def wrap(self, result: Array) -> Tensor:
        return as_kind_of(self._given, result) if self._output is None else self._output.write(result)
