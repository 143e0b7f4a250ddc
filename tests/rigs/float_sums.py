"""Sums of floats in 32, 16 and 8 bits as docs/protocol.md defines them, by numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.codecs.formats import headroom_bits
from p4reduce.protocol.blocks import Blocks, Words
from p4reduce.protocol.state import UNTOUCHED


def summed_words(sources: Sequence[Blocks], block_words: int) -> tuple[Words, NDArray[np.uint8]]:
    """Return the sums of all ranks' blocks, added by numpy in the switch's place, and the exponents agreed on."""
    held = np.array([source.nonzero for source in sources])
    fields = np.where(held, [source.exponents for source in sources], 0).max(axis=0).astype(np.uint8)
    sums = np.zeros((sources[0].n_blocks, block_words), np.uint32)
    for source in sources:
        mine = np.flatnonzero(source.nonzero)
        sums[mine] += source.encode(mine, fields[mine]).astype(np.uint32)
    assert np.abs(sums.view(np.int32).astype(np.int64)).max(initial=0) <= sources[0].parts[0].largest_sum
    return sums.astype(">u4"), np.where(held.any(axis=0), fields, UNTOUCHED).astype(np.uint8)


def fields_of(tensor: torch.Tensor, per_block: int) -> NDArray[np.int64]:
    """Return the exponent field of each block: its largest |x| is below 2^(field - 126)."""
    flat = tensor.double().abs().numpy()
    rows = np.pad(flat, (0, -len(flat) % per_block)).reshape(-1, per_block)
    found = np.frexp(rows.max(axis=1))[1] + 126
    least = 112 if tensor.dtype == torch.float16 else 0
    return np.where(rows.any(axis=1), np.maximum(found, least), 0)


def by_numpy(tensors: list[torch.Tensor], bits: int, block_words: int, *, mean: bool = False) -> torch.Tensor:
    """Return the sum as docs/protocol.md defines it."""
    ranks, dtype = len(tensors), tensors[0].dtype
    m = (30 if bits == 32 else bits - 2) - headroom_bits(ranks)
    per_block = block_words * 32 // bits
    fields = np.max([fields_of(tensor, per_block) for tensor in tensors], axis=0)
    powers = m + 126.0 - fields
    powers = powers if bits == 32 else np.minimum(powers, 127)
    scale = np.repeat(2.0**powers, per_block)[: len(tensors[0])]
    total = np.zeros(len(scale))
    for tensor in tensors:
        whole = np.rint(tensor.double().numpy() * scale)
        beyond = 2.0 ** (m + 0.0) > scale * torch.finfo(dtype).max
        total += whole if bits == 32 else np.clip(whole, beyond - 2.0**m, 2.0**m - beyond)
    unit = 1 / ((ranks if mean else 1) * scale)
    numbers = total * unit if bits == 32 else total.astype(np.float32) * unit.astype(np.float32)
    return rounded_once(numbers, dtype)


def rounded_once(numbers: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    """Return float64 numbers in a type, ties to even; `to(dtype)` would round them to float32 before."""
    bits, least = {torch.float32: (24, -125), torch.bfloat16: (8, -125), torch.float16: (11, -13)}[dtype]
    unit = 2.0 ** (np.maximum(np.frexp(numbers)[1], least) - bits)
    return torch.from_numpy(np.rint(numbers / unit) * unit).to(dtype)
