"""Element sparsifiers: some elements of each parameter are sent, and the rest is kept, with error feedback."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.codecs.formats import levels
from p4reduce.compressors.forms import Gather, Shared, Sum, WireForm, agreed_scales
from p4reduce.compressors.interface import AUTO, Compressor
from p4reduce.compressors.messages import Form
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.selection import Selection, begins_of
from p4reduce.compressors.settings import check_choice
from p4reduce.compressors.step import Answer, Compressed, Decompressed, ParameterState, Step
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.lanes import lanes_per_word, narrowest
from p4reduce_runtime import kernels


class ElementSparsifier(Compressor):
    """A compressor that sends some elements; a subclass chooses them.

    In the forms sum and gather it sends the sign of each, times a scale of the parameter; in the form shared its value.
    """

    forms: ClassVar[tuple[Form, ...]] = (Form.SUM, Form.GATHER, Form.SHARED)

    def __init__(
        self,
        policy: Policy | None = None,
        form: str = AUTO,
        *,
        value_bits: int = 16,
        warmup_steps: int = 0,
        momentum: float = 0.0,
    ) -> None:
        """`form`: "auto" is gather, or sum where all ranks' coordinates took more bytes in the last step than lanes for
        all elements would. `value_bits`: the form shared's, 8, 16 or 32. `momentum`: see `Compressor`."""
        check_choice("value_bits", value_bits, (8, 16, 32))
        policy = self.default_policy() if policy is None else policy
        super().__init__(policy, form, warmup_steps=warmup_steps, momentum=momentum)
        self.value_bits = value_bits
        self._wire: Mapping[Form, WireForm] = {
            Form.SUM: Sum(),
            Form.GATHER: Gather(),
            Form.SHARED: Shared(value_bits, self.next_residue),
        }
        kernels.preload("p4reduce.compressors.kernels")  # as in Compressor

    def choose(self, step: Step, total: torch.Tensor) -> torch.Tensor:
        """Choose the elements to send, bool [elements], from G = R + dW, for `select`."""
        raise NotImplementedError(f"{self.name} defines neither what `choose` nor what `select` returns")

    def select(self, steps: Sequence[Step]) -> Selection:
        """Return G = R + dW of each parameter and the elements of it to send: those that `choose` chooses.

        Of a gradient that is all zero nothing is chosen, so its residue is kept. The scale is the mean |G| of the
        elements chosen. Raises InvalidTensorError as `Step.add_residue` does.
        """
        totals = [step.add_residue() for step in steps]
        chosen = [
            self.choose(step, total) if bool(step.flat.any()) else torch.zeros_like(total, dtype=torch.bool)
            for step, total in zip(steps, totals, strict=True)
        ]
        indices = [torch.nonzero(own).reshape(-1) for own in chosen]
        means = [
            float(total[own].abs().mean(dtype=torch.float64)) if len(own) else 0.0
            for total, own in zip(totals, indices, strict=True)
        ]
        return Selection(
            torch.cat(totals),
            begins_of([total.numel() for total in totals]),
            torch.cat(indices).numpy(),
            np.cumsum([len(own) for own in indices]),
            np.array(means, np.float32),
        )

    def next_residue(self, total: torch.Tensor, gradient: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
        """Return the next residue in the form shared, from G, dW and what this rank sent of G; float32 [elements]."""
        return total - sent

    def form_of(self, key: str, shape: torch.Size, group: Lease) -> Form:
        if self.form != AUTO:
            return Form(self.form)
        lane_bits = narrowest(group.world_size, 1)
        coordinate_bytes = self.state_of(key).selected or 0  # an element takes a byte where so many are selected
        return Form.SUM if coordinate_bytes > 4 * shape.numel() / lanes_per_word(lane_bits) else Form.GATHER

    def check(self, group: Lease) -> None:
        if self.form == Form.SHARED and self.value_bits < 32:
            levels(self.value_bits, group.world_size)

    # ----- a step

    def compress(self, steps: Sequence[Step]) -> list[Compressed]:
        found: dict[int, Compressed] = {}
        for form, at in _by_form(steps).items():
            found |= zip(at, self._wire[form].pack([steps[i] for i in at], self.select), strict=True)
        return [found[i] for i in range(len(steps))]

    def decompress(
        self, steps: Sequence[Step], compressed: Sequence[Compressed], answers: Sequence[Answer]
    ) -> list[Decompressed]:
        found: dict[int, Decompressed] = {}
        for form, at in _by_form(steps).items():
            own = self._wire[form].unpack([steps[i] for i in at], [compressed[i] for i in at], [answers[i] for i in at])
            found |= zip(at, own, strict=True)
        return [found[i] for i in range(len(steps))]

    # ----- what the ranks agree on

    def initial_metadata(self, step: Step) -> tuple[float, ...]:
        if step.form is not Form.SUM or step.state.scale is not None:
            return ()
        return (float(self.select([step]).scales[0]),)

    def agreed_scale(self, metadata: NDArray[np.float32]) -> float:
        return agreed_scales(metadata[None, :, 0])[0]

    def agreement_text(self, states: Iterable[ParameterState]) -> str:
        states = list(states)
        return f"{super().agreement_text(states)}, scales {[state.scale for state in states]}"


def _by_form(steps: Sequence[Step]) -> dict[Form, list[int]]:
    found: dict[Form, list[int]] = {}
    for number, step in enumerate(steps):
        found.setdefault(step.form, []).append(number)
    return found
