"""AdaComp: residual gradient compression with an adaptive number of elements a bin.

Source: Chen et al., "AdaComp: Adaptive Residual Gradient Compression for Data-Parallel Distributed
Training", AAAI 2018. What the paper's own text would settle beyond the selection rule below is not claimed
here.

For one parameter, with residue R and this step's gradient dW (all element-wise):

    G = R + dW          H = G + dW
    in each bin of L_T elements    gmax = max |G|
    select j        <=>  |H_j| >= gmax and gmax > 0
    scale            =   mean over the bins of gmax          (one number a parameter)
    sent_j           =   sign(G_j) * scale where selected, else 0
    R                <-  G - sent

Two scales are possible. The paper's: each rank sends with its own `scale`. On a switch that only sums words
every rank must send with the same one, so the words can be ternary and one factor decodes their sum: there
the scale is the mean over the ranks of the *previous* step's local scales (`AdaComp.shared_scale`), and the
residue is taken from what was really sent, so nothing is lost when it is off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from p4reduce.errors import InvalidTensor

__all__ = ["AdaComp", "Compressed"]

# The paper's coordinate encoding: 8 bits an element (6-bit offset, 2-bit value) in bins of fewer than 64
# elements, 16 bits (14 + 2) in bins of up to 16 K.
SHORT_BIN = 64
LONGEST_BIN = 16 * 1024
SCALE_BITS = 32
FLOAT_BITS = 32


@dataclass(frozen=True)
class Compressed:
    """What one rank sends of one parameter: `signs * scale`."""

    signs: torch.Tensor  #: int8, [elements], each -1, 0 or 1
    scale: float  #: what one sign stands for
    local_scale: float  #: the scale this rank would have taken by itself (mean over bins of max |G|)
    selected: int  #: elements selected


class AdaComp:
    """AdaComp's state: the residue and the shared scale of every parameter, and counts for the rate.

    State is keyed by the parameter's name, never by its bucket: DDP rebuilds its buckets after the first
    step.
    """

    def __init__(self, conv_bin: int = 50, dense_bin: int = 500) -> None:
        """L_T in elements: `conv_bin` for convolutions, `dense_bin` for linear and recurrent layers."""
        for name, size in (("conv_bin", conv_bin), ("dense_bin", dense_bin)):
            if not 1 <= size <= LONGEST_BIN:
                raise ValueError(f"{name} must be between 1 and {LONGEST_BIN} elements, not {size}")
        self.conv_bin = conv_bin
        self.dense_bin = dense_bin
        self._residues: dict[str, torch.Tensor] = {}
        self._shared_scales: dict[str, float] = {}
        self._dense_bits = 0
        self._sent_bits = 0

    def bin_size(self, shape: torch.Size) -> int | None:
        """L_T for a parameter of this shape; None where it stays dense (fewer than two dimensions)."""
        if len(shape) < 2:
            return None
        return self.dense_bin if len(shape) == 2 else self.conv_bin

    def local_scale(self, key: str, gradient: torch.Tensor) -> float:
        """The scale this rank alone would take now, without a change to its state."""
        return _mean_of(_bin_maxima(self._accumulated(key, gradient), self._bin_of(key, gradient)))

    def compress(self, key: str, gradient: torch.Tensor, scale: float | None = None) -> Compressed:
        """Select what to send of this step's gradient of parameter `key`; the rest becomes its residue.

        `gradient`: float32, at least two-dimensional, any layout. `scale`: the shared scale; None takes the
        paper's own one. Raises InvalidTensor, naming `key`, when the gradient has a NaN or an infinity; the
        state is then unchanged.
        """
        size = self._bin_of(key, gradient)
        step = gradient.detach().reshape(-1)
        total = self._accumulated(key, gradient)
        maxima = _bin_maxima(total, size)
        local = _mean_of(maxima)
        scale = local if scale is None else scale
        threshold = maxima.repeat_interleave(size)[: total.numel()]
        chosen = ((total + step).abs() >= threshold) & (threshold > 0)
        signs = torch.where(chosen, total.sign(), torch.zeros_like(total))
        self._residues[key] = total - signs * scale
        selected = int(chosen.sum())
        self._count(total.numel(), selected, size)
        return Compressed(signs.to(torch.int8), scale, local, selected)

    def shared_scale(self, key: str) -> float | None:
        """The scale all ranks use for `key` now; None before the first one was agreed."""
        return self._shared_scales.get(key)

    def set_shared_scale(self, key: str, scale: float) -> None:
        """Take the scale all ranks agreed on (mean over ranks of the local scales) for the next step."""
        self._shared_scales[key] = scale

    def residue(self, key: str) -> torch.Tensor | None:
        """The residue of `key`, float32 [elements]; None before its first step."""
        return self._residues.get(key)

    @property
    def effective_compression_rate(self) -> float:
        """The paper's rate: 32 D / bits sent, over every compress() so far, in the paper's coordinate
        encoding.

        It says what the selection could cost, not what a switch that sums words was sent. NaN before the
        first step.
        """
        return self._dense_bits / self._sent_bits if self._sent_bits else float("nan")

    def state_dict(self) -> dict[str, Any]:
        """Everything a checkpoint needs. Each rank's is its own: residues differ between ranks."""
        return {
            "residues": {key: residue.clone() for key, residue in self._residues.items()},
            "shared_scales": dict(self._shared_scales),
            "dense_bits": self._dense_bits,
            "sent_bits": self._sent_bits,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up where `state_dict` was made. All ranks must load the same step's state."""
        self._residues = {key: residue.clone() for key, residue in state["residues"].items()}
        self._shared_scales = dict(state["shared_scales"])
        self._dense_bits = int(state["dense_bits"])
        self._sent_bits = int(state["sent_bits"])

    def _bin_of(self, key: str, gradient: torch.Tensor) -> int:
        size = self.bin_size(gradient.shape)
        if size is None:
            raise ValueError(f"parameter {key!r} has fewer than two dimensions: send it dense, not compressed")
        return size

    def _accumulated(self, key: str, gradient: torch.Tensor) -> torch.Tensor:
        """G = R + dW, float32 [elements]."""
        if gradient.dtype != torch.float32:
            raise InvalidTensor(f"gradient of {key!r} is {gradient.dtype}: AdaComp takes float32 only")
        step = gradient.detach().reshape(-1)
        if not bool(torch.isfinite(step).all()):
            raise InvalidTensor(f"gradient of {key!r} holds a NaN or an infinity: skip this step or clip the loss")
        residue = self._residues.get(key)
        if residue is None:
            return step.clone()
        if residue.numel() != step.numel():
            raise InvalidTensor(
                f"gradient of {key!r} has {step.numel()} elements, its residue {residue.numel()}: "
                "load the state of the same model"
            )
        return residue + step

    def _count(self, elements: int, selected: int, size: int) -> None:
        """Add to the counts behind effective_compression_rate."""
        bits = 8 if size < SHORT_BIN else 16
        self._dense_bits += FLOAT_BITS * elements
        self._sent_bits += bits * selected + SCALE_BITS


def _bin_maxima(total: torch.Tensor, size: int) -> torch.Tensor:
    """max |G| of each bin, float32 [bins]; the last bin may be partial."""
    bins = -(-total.numel() // size)
    padded = torch.nn.functional.pad(total.abs(), (0, bins * size - total.numel()))
    return padded.view(bins, size).amax(dim=1) if bins else padded


def _mean_of(maxima: torch.Tensor) -> float:
    """Mean over the bins; 0 for an empty parameter, where torch's mean would be NaN."""
    return float(maxima.mean()) if maxima.numel() else 0.0
