"""AdaComp: residual gradient compression with an adaptive number of elements a bin.

Source: Chen et al., "AdaComp: Adaptive Residual Gradient Compression for Data-Parallel Distributed
Training", AAAI 2018. Beyond the selection rule below the paper's text was not at hand (unverified).

For one parameter, with residue R and this step's gradient dW (all element-wise):

    G = R + dW          H = G + dW
    in each bin of L_T elements    gmax = max |G|
    select j        <=>  |H_j| >= gmax and gmax > 0
    scale            =   mean over the bins of gmax          (one number a parameter)
    sent_j           =   sign(G_j) * scale where selected, else 0
    R                <-  G - sent

How a switch that only adds words sums this depends on the form:

gather   As published: each rank's coordinates are sent with its own scale, and every rank adds them up in the order of
         the ranks.
sum      One factor must decode the sum, so all ranks use one unit: the mean over the ranks of the *previous* step's
         scales, and integers -1, 0 and 1. For unequal ranks give `levels` > 1: the unit t then is the largest scale
         of the previous step over `levels`, and rank w sends k_w = max(1, round(scale / t)) <= levels times its signs.
shared   One rank a step, in turn, selects for all, and the values of all ranks there are summed (shared_support.py;
         ours). A step then carries less, and its bytes do not grow with the ranks.

"auto" sends a parameter in the form sum where in the last step the coordinates of all ranks took more bytes than lanes
for all elements would, else in the form gather.

The residue is taken from what was really sent, so nothing is lost when a scale is off. A rank whose gradient is all
zero (a layer that was not used) selects nothing of it and keeps its residue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.codecs import coordinates
from p4reduce.codecs.coordinates import Part, RanksCoordinates
from p4reduce.compressors.forms import Form, Integers, Message, Stream
from p4reduce.compressors.interface import AUTO, register
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.selection import (
    Selection,
    Selections,
    join,
    largest_by_bin,
    select_all_by_bin,
    select_by_bin,
    subtract_signs,
)
from p4reduce.compressors.settings import check_whole
from p4reduce.compressors.shared_support import SharedSupport
from p4reduce.compressors.step import Answer, Compressed, Decompressed, ParameterState, Step
from p4reduce.group import Group
from p4reduce_contracts.wire.lanes import lanes_per_word, narrowest

SCALE_BITS = 32


@register("adacomp")
class AdaComp(SharedSupport):
    """AdaComp; a parameter's state is its residue and the scale that the ranks agreed on: their mean, or with levels
    their largest."""

    forms: ClassVar[tuple[Form, ...]] = (Form.SUM, Form.GATHER, Form.SHARED)

    def __init__(
        self,
        policy: Policy | None = None,
        form: str = AUTO,
        *,
        levels: int = 1,
        value_bits: int = 16,
        warmup_steps: int = 0,
        momentum: float = 0.0,
    ) -> None:
        """`policy` gives L_T (default: 50 for convolutions, 500 for other layers). `levels`: of the form sum.
        `value_bits`: 8, 16 or 32, of the form shared. `momentum`: of momentum correction, for an optimizer without a
        first moment, `AdamW(betas=(0.0, beta2))` or `SGD(momentum=0)` (exchange.py)."""
        check_whole("levels", levels, 1)
        super().__init__(policy, form, value_bits=value_bits, warmup_steps=warmup_steps, momentum=momentum)
        self.levels = levels

    def form_of(self, key: str, shape: torch.Size, group: Group) -> Form:
        selected = self.state_of(key).selected
        if self.form != AUTO:
            return Form(self.form)
        lane_bits = narrowest(group.world_size, self.levels)
        coordinate_bytes = selected or 0  # an element takes a byte where so many are selected
        return Form.SUM if coordinate_bytes > 4 * shape.numel() / lanes_per_word(lane_bits) else Form.GATHER

    def check(self, group: Group) -> None:
        super().check(group)
        if self.form in (AUTO, Form.SUM):
            narrowest(group.world_size, self.levels)

    def select(self, step: Step, length: int) -> Selection:
        """Choose where |H| >= gmax > 0, bin by bin."""
        return select_by_bin(step, length)

    def scale_of(self, total: torch.Tensor, length: int) -> float:
        """Return the mean over the bins of max |G|, as a float32 holds it."""
        return _scale_from(largest_by_bin(total, length))

    # ----- a step

    def compress(self, step: Step) -> Compressed:
        if step.form is Form.SHARED:
            return super().compress(step)
        return self._compress_signs([step])[0]

    def compress_all(self, steps: Mapping[str, Step]) -> dict[str, Compressed]:
        if type(self).compress is not AdaComp.compress:  # a subclass has its own, for one parameter
            return super().compress_all(steps)
        found: dict[str, Compressed] = {}
        for form in Form:
            if of_form := {key: step for key, step in steps.items() if step.form is form}:
                shared = form is Form.SHARED
                made = map(self.compress, of_form.values()) if shared else self._compress_signs([*of_form.values()])
                found |= zip(of_form, made, strict=True)
        return {key: found[key] for key in steps}

    def decompress(self, step: Step, compressed: Compressed, answer: Answer) -> Decompressed:
        if step.form is Form.GATHER:
            return self._of_coordinates([compressed], [answer.result])[0]
        if step.form is Form.SHARED:
            return super().decompress(step, compressed, answer)
        assert isinstance(compressed.message, Integers)
        mean = answer.result * (compressed.message.unit / step.group.world_size)
        selected = round(answer.metadata[:, 1].sum(dtype=np.float64))
        scale = self.agreed_scale(answer.metadata)
        return Decompressed(mean, compressed.kept, compressed.sent_bits, scale, selected)

    def decompress_all(
        self, steps: Mapping[str, Step], compressed: Mapping[str, Compressed], answers: Mapping[str, Answer]
    ) -> dict[str, Decompressed]:
        if type(self).decompress is not AdaComp.decompress:
            return super().decompress_all(steps, compressed, answers)
        gathered = {key: step for key, step in steps.items() if step.form is Form.GATHER}
        others = {key: step for key, step in steps.items() if step.form is not Form.GATHER}
        found = super().decompress_all(others, compressed, answers)
        if gathered:
            results = [answers[key].result for key in gathered]
            means = self._of_coordinates([compressed[key] for key in gathered], results)
            found |= zip(gathered, means, strict=True)
        return {key: found[key] for key in steps}

    def _compress_signs(self, steps: Sequence[Step]) -> list[Compressed]:
        """Compress parameters that are all sent in the form gather, or all in the form sum."""
        lengths = [self._length_in(step) for step in steps]
        selected = self._select_all(steps, lengths)
        sizes = np.diff(selected.begin).tolist()
        scales = selected.scales.tolist()
        messages: Sequence[Message]
        metadata: list[tuple[float, ...]] = [()] * len(steps)
        if steps[0].form is Form.GATHER:
            amounts = selected.scales
            signs = subtract_signs(selected, amounts)
            streams = coordinates.encode_all(*signs, selected.scales)
            messages = [Stream(stream, Part(size, None)) for stream, size in zip(streams, sizes, strict=True)]
            chosen = np.diff(signs.ends, prepend=0).tolist()
        else:
            units = [self._unit_of(step) for step in steps]
            weights = [
                min(self.levels, max(1, round(scale / unit))) if unit > 0 else 1
                for scale, unit in zip(scales, units, strict=True)
            ]
            amounts = np.array([weight * unit for weight, unit in zip(weights, units, strict=True)], np.float32)
            signs = subtract_signs(selected, amounts)
            chosen = np.diff(signs.ends, prepend=0).tolist()
            integers = np.zeros(int(selected.begin[-1]), np.int8 if self.levels <= np.iinfo(np.int8).max else np.int32)
            places = signs.indices + np.repeat(selected.begin[:-1], chosen)
            integers[places] = signs.signs * np.repeat(np.array(weights, integers.dtype), chosen)
            own = torch.split(torch.from_numpy(integers), sizes)
            messages = [Integers(values, self.levels, unit) for values, unit in zip(own, units, strict=True)]
            metadata = [(scale, float(many)) for scale, many in zip(scales, chosen, strict=True)]
        bits = [_bits_of(many, length) for many, length in zip(chosen, lengths, strict=True)]
        kept = torch.split(selected.total, sizes)
        sent = [
            indices if amount > 0 else indices[:0]
            for indices, amount in zip(torch.split(torch.from_numpy(signs.indices), chosen), amounts, strict=True)
        ]
        return [Compressed(*one) for one in zip(messages, kept, bits, metadata, sent, strict=True)]

    def _select_all(self, steps: Sequence[Step], lengths: Sequence[int]) -> Selections:
        if type(self).select is AdaComp.select:
            return select_all_by_bin(steps, lengths)
        own = [self.select(step, length) for step, length in zip(steps, lengths, strict=True)]
        return join(own, [self.scale_of(one.total, length) for one, length in zip(own, lengths, strict=True)])

    def _of_coordinates(
        self, compressed: Sequence[Compressed], results: Sequence[RanksCoordinates]
    ) -> list[Decompressed]:
        """Add the ranks' coordinates up, and count them for the next step's choice of form."""
        joined = coordinates.join(results)
        scales = self._agreed_scales(joined.scales.astype(np.float32))
        means = map(torch.from_numpy, joined.means())
        return [
            Decompressed(mean, own.kept, own.sent_bits, scale, len(result.indices))
            for mean, own, result, scale in zip(means, compressed, results, scales, strict=True)
        ]

    def _length_in(self, step: Step) -> int:
        return self.length_of(step.key, step.gradient.shape)

    def _unit_of(self, step: Step) -> float:
        assert step.state.scale is not None, "a first step in the form sum begins with the first agreement"
        return step.state.scale / self.levels

    # ----- what the ranks agree on

    def initial_metadata(self, step: Step) -> tuple[float, ...]:
        if step.form is not Form.SUM or step.state.scale is not None:
            return ()
        return (self.scale_of(step.add_residue(), self.length_of(step.key, step.gradient.shape)),)

    def agreed_scale(self, metadata: NDArray[np.float32]) -> float:
        """Return the ranks' mean scale, or their largest where there are levels."""
        return self._agreed_scales(metadata[None, :, 0])[0]

    def _agreed_scales(self, scales: NDArray[np.float32]) -> list[float]:
        """Return the agreed scale of each parameter, from all ranks', [parameters, ranks]."""
        agreed = scales.mean(axis=1, dtype=np.float64) if self.levels == 1 else scales.max(axis=1, initial=0)
        return [float(scale) for scale in agreed.tolist()]

    def agreement_text(self, states: Iterable[ParameterState]) -> str:
        states = list(states)
        scales = [state.scale for state in states]
        return f"{super().agreement_text(states)}, {self.levels} levels, scales {scales}"


def _bits_of(elements: int, length: int) -> int:
    """Return the bits of so many coordinates and their scale, as the paper counts them."""
    return SCALE_BITS + coordinates.published_bits(length) * elements


def _scale_from(largest: torch.Tensor) -> float:
    """Return the mean of the bins' largest |G|, as a float32 holds it."""
    return float(np.float32(mean_of(largest)))


def mean_of(values: torch.Tensor) -> float:
    """Return the mean, in double precision so that it cannot overflow; 0 of nothing, where torch's would be NaN."""
    return float(values.mean(dtype=torch.float64)) if values.numel() else 0.0
