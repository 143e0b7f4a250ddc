"""The mean of all ranks' gradients in the steps of a training: compressed, or whole in fewer bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from p4reduce.compressors import Compressor
from p4reduce.compressors.all_reduce import BucketReport
from p4reduce.compressors.exchange import Gradients
from p4reduce.testing.in_process import exchange_all, groups, sum_segment
from p4reduce_lab.study.on_switch import OnSwitch
from p4reduce_lab.study.rounded import ROUNDED, Rounded


class Means:
    """What all ranks of a training send, and keep. A variant of rounded.py has no compressors.

    `compressors`: by rank. `measured`: what each step that went through a switch cost a worker.
    """

    def __init__(self, model: nn.Module, variant: str, world_size: int, make: Callable[[], Compressor]) -> None:
        """`make`: a rank's compressor, for a variant that is not rounded."""
        parameters = dict(model.named_parameters())
        self._rounded = Rounded(ROUNDED[variant], parameters, world_size) if variant in ROUNDED else None
        self.compressors = [] if self._rounded else [make() for _ in range(world_size)]
        for compressor in self.compressors:
            compressor.bind(model)
        self._places = groups(world_size)
        self.measured: list[dict[str, Any]] = []

    def of(self, gradients: Sequence[Gradients], step: int, switch: OnSwitch | None) -> Mapping[str, torch.Tensor]:
        """Return the means by parameter name. `switch`: sum there, and measure; None: in this process."""
        if self._rounded is not None:
            segments = self._rounded.segments(gradients)
            if switch is None:
                return self._rounded.split(sum_segment(segments, self._places[0])[0])
            totals, reports, again = switch.sum(segments)
            self._measure(step, reports, again)
            return self._rounded.split(totals[0])
        if switch is None:
            return exchange_all(self.compressors, gradients, self._places)[0].means
        outcomes, reports, again = switch.exchange(self.compressors, gradients)
        self._measure(step, reports, again)
        return outcomes[0].means

    def residue_norm(self) -> float:
        """Return the L2 norm of a rank's residue, the mean over the ranks."""
        if self._rounded is not None:
            return self._rounded.residue_norm()
        return sum(compressor.residue_norm() for compressor in self.compressors) / len(self.compressors)

    def _measure(self, step: int, reports: Sequence[BucketReport], again: int) -> None:
        """Add what a step cost a worker on the wire: the mean over the workers."""
        self.measured.append(
            {
                "step": step,
                "bytes_up": sum(report.bytes_up for report in reports) / len(reports),
                "bytes_down": sum(report.bytes_down for report in reports) / len(reports),
                "predicted_bytes_down": reports[0].predicted_bytes_down,
                "forms": {key: str(form) for key, form in reports[0].forms.items()},
                "frames_again": again,
            }
        )
