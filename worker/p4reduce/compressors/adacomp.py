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

How that meets a switch that only sums words depends on the form:

gather   As published: each rank's coordinates travel with its own scale, and every rank adds them up in the order of
         the ranks.
sum      One factor must decode the sum, so all ranks use one unit: the mean over the ranks of the *previous* step's
         scales, and integers -1, 0 and 1. For unequal ranks give `levels` > 1: the unit t then is the largest scale
         of the previous step over `levels`, and rank w sends k_w = max(1, round(scale / t)) <= levels times its signs.
shared   One rank a step, in turn, selects for all, and the values of all ranks there are summed (shared_support.py;
         ours). A step then carries less: "auto" takes it only with `allow_shared`.

The residue is taken from what was really sent, so nothing is lost when a scale is off. A rank whose gradient is all
zero (a layer that was not used) selects nothing of it and keeps its residue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.codecs import coordinates
from p4reduce.codecs.coordinates import STREAM_HEADER_BYTES, Coordinates, Part, RanksCoordinates
from p4reduce.compressors.bins import by_bin, flat_again, mean_of
from p4reduce.compressors.interface import AUTO, Form, Integers, Message, Stream
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.shared_support import SharedSupport
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.lanes import lanes_per_word, narrowest

SCALE_BITS = 32


class AdaComp(SharedSupport):
    """AdaComp's state: residue and agreed scale of every parameter."""

    name: ClassVar[str] = "adacomp"
    forms: ClassVar[tuple[Form, ...]] = (Form.SUM, Form.GATHER, Form.SHARED)

    def __init__(
        self,
        policy: Policy | None = None,
        form: str = AUTO,
        *,
        levels: int = 1,
        allow_shared: bool = False,
        value_bits: int = 16,
        warmup_steps: int = 0,
    ) -> None:
        """`policy` gives L_T (default: 50 for convolutions, 500 for other layers). `levels`: of the form sum.
        `value_bits`: 8, 16 or 32, of the form shared."""
        if levels < 1:
            raise ValueError(f"levels is {levels}; give 1 or more")
        super().__init__(policy, form, value_bits=value_bits, warmup_steps=warmup_steps)
        self.levels = levels
        self.allow_shared = allow_shared
        self._scales: dict[str, float] = {}  # agreed: the ranks' mean, or their largest where levels > 1
        self._union: dict[str, int] = {}  # between decompress and agree: blocks of lanes
        self._own: dict[str, tuple[float, int]] = {}  # of this step: own scale, elements selected

    def auto_forms(self) -> tuple[Form, ...]:
        return self.forms if self.allow_shared else (Form.SUM, Form.GATHER)

    def check(self, lease: Lease) -> None:
        if self.form in (AUTO, Form.SUM):
            self.lane_bits(self.levels, lease)
        if self.form == Form.SHARED or self.allow_shared:
            super().check(lease)

    def choose(self, total: torch.Tensor, step: torch.Tensor, length: int) -> torch.Tensor:
        """|H| >= gmax > 0, bin by bin."""
        binned = by_bin(total, length)
        most = binned.abs().amax(dim=1, keepdim=True)
        chosen = ((binned + by_bin(step, length)).abs() >= most) & (most > 0)
        return flat_again(chosen, total.numel())

    def scale_of(self, total: torch.Tensor, length: int) -> float:
        """The mean over the bins of max |G|, as a float32 holds it."""
        return float(np.float32(mean_of(by_bin(total.abs(), length).amax(dim=1)))) if total.numel() else 0.0

    def compress(self, key: str, gradient: torch.Tensor, form: Form, lease: Lease) -> Message:
        length = self.length_of(key, gradient.shape)
        if form is Form.SHARED:
            message = super().compress(key, gradient, form, lease)
            self._own[key] = self.scale_of(self._pending[key][0], length), 0
            return message
        step = gradient.detach().reshape(-1)
        total = self._residues.added_to(key, step)
        scale = self.scale_of(total, length)
        chosen = self.choose(total, step, length) if bool(step.any()) else torch.zeros_like(total, dtype=torch.bool)
        indices = torch.nonzero(chosen & (total != 0)).reshape(-1)  # 0 has no sign to send
        signs = total[indices].sign()
        self._own[key] = scale, len(indices)
        self.counted(key, total.numel(), SCALE_BITS + 8 * coordinates.entry_bytes(length) * len(indices))
        if form is Form.GATHER:
            total[indices] -= signs * scale
            self.keep_back(key, total)
            own = Coordinates(scale, indices.numpy(), signs.to(torch.int8).numpy())
            return Stream(coordinates.encode(own, length), Part(total.numel(), length, None))
        unit = self._scales[key] / self.levels
        weight = min(self.levels, max(1, round(scale / unit))) if unit > 0 else 1
        total[indices] -= signs * (weight * unit)
        self.keep_back(key, total)
        integers = torch.zeros(total.numel(), dtype=torch.int32)
        integers[indices] = (signs * weight).to(torch.int32)
        return Integers(integers, self.levels, unit)

    def decompress(self, key: str, message: Message, answer: Any, lease: Lease) -> torch.Tensor:
        if isinstance(message, Integers):
            # The union's blocks of lanes; where the ranks cancelled out one is missed, the same on all of them.
            per_block = self._lanes_per_block(lease)
            union = int(by_bin(answer, per_block).any(dim=1).sum()) if answer.numel() else 0
            self._union[key] = union  # until agree() tells the selected elements too
            totals: torch.Tensor = answer.to(torch.float32)
            return totals * (message.unit / lease.world_size)
        if isinstance(message, Stream):
            return self._add_up(key, answer, lease)
        return super().decompress(key, message, answer, lease)

    def counts_of(self, chosen: int, elements: int, lease: Lease) -> list[float]:
        selected = float(chosen * lease.world_size)
        return [selected, self._likely_union(selected, elements, lease)]

    def _add_up(self, key: str, answer: RanksCoordinates, lease: Lease) -> torch.Tensor:
        """The mean of the ranks' coordinates; counts them for the next step's choice of form."""
        per_block = self._lanes_per_block(lease)
        union = np.zeros(-(-answer.elements // per_block), bool)
        for one in answer.ranks:
            union[one.indices // per_block] = True
        self.note(key, [float(sum(len(one.indices) for one in answer.ranks)), float(union.sum())])
        self._take_scales(key, np.array([one.scale for one in answer.ranks], np.float32))
        return torch.from_numpy(answer.mean)

    def first_facts(self, key: str, gradient: torch.Tensor) -> list[float]:
        if key in self._scales:
            return []
        step = gradient.detach().reshape(-1)
        return [self.scale_of(self._residues.added_to(key, step), self.length_of(key, gradient.shape))]

    def facts(self, key: str, form: Form) -> list[float]:
        scale, selected = self._own.get(key, (0.0, 0))
        if form is Form.SUM:
            return [scale, float(selected)]
        return [scale] if form is Form.SHARED and self.form == AUTO else []

    def agree(self, key: str, facts: NDArray[np.float32]) -> None:
        self._take_scales(key, facts[:, 0])
        if facts.shape[1] > 1:
            self.note(key, [float(np.rint(facts[:, 1]).sum()), float(self._union.pop(key, 0))])

    def _take_scales(self, key: str, scales: NDArray[np.float32]) -> None:
        self._scales[key] = float(scales.mean(dtype=np.float64) if self.levels == 1 else scales.max(initial=0))

    def agreed(self, keys: Iterable[str]) -> str:
        keys = list(keys)
        return f"{super().agreed(keys)}, {self.levels} levels, scales {[self._scales.get(key) for key in keys]}"

    def shared_scale(self, key: str) -> float | None:
        """What all ranks agreed on for the next step's form sum; None before the first."""
        return self._scales.get(key)

    def expected_bytes(self, key: str, shape: torch.Size, form: Form, lease: Lease) -> float | None:
        counts = self._counts.get(key)
        if counts is None:
            return None
        selected, union = counts
        length = self.length_of(key, shape)
        if form is Form.SHARED:
            return self.shared_bytes(selected / lease.world_size, length)
        if form is Form.GATHER:
            return lease.world_size * STREAM_HEADER_BYTES + selected * coordinates.entry_bytes(length)
        return 4 * lease.block_words * union

    def _likely_union(self, selected: float, elements: int, lease: Lease) -> float:
        """Blocks of lanes that `selected` elements would touch anywhere: the form shared cannot count them."""
        per_block = self._lanes_per_block(lease)
        density = min(1.0, selected / elements) if elements else 0.0
        return -(-elements // per_block) * (1 - (1 - density) ** per_block)

    def _lanes_per_block(self, lease: Lease) -> int:
        """Elements in a block of the form sum, whether or not its sums would fit the job's lanes."""
        return lease.block_words * lanes_per_word(lease.lane_bits or narrowest(lease.world_size, self.levels))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "scales": dict(self._scales)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._scales = dict(state["scales"])
