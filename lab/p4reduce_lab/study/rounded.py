"""Whole gradients in 16 and 8 bits a number, as DDPState(wire=, feedback=) sends them: one bucket of all parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from p4reduce.codecs import Segment
from p4reduce.codecs.wire import ResidueLanes, Wire, float_segment

Gradients = Sequence[Mapping[str, torch.Tensor]]


@dataclass(frozen=True)
class RoundedVariant:
    """A format, rounded to the nearest, with or without error feedback."""

    name: str
    wire: Wire
    feedback: bool


ROUNDED = {
    variant.name: variant
    for variant in (
        RoundedVariant("wire-16", "16", feedback=False),
        RoundedVariant("wire-16-feedback", "16", feedback=True),
        RoundedVariant("wire-8", "8", feedback=False),
        RoundedVariant("wire-8-feedback", "8", feedback=True),
    )
}


class Rounded:
    """What all ranks send in one format, and their residues."""

    def __init__(self, variant: RoundedVariant, parameters: Mapping[str, torch.Tensor], world_size: int) -> None:
        self._wire = variant.wire
        self._shapes = {name: parameters[name].shape for name in reversed(list(parameters))}  # DDP's order in a bucket
        elements = sum(shape.numel() for shape in self._shapes.values())
        self._residues = [torch.zeros(elements) for _ in range(world_size)] if variant.feedback else []

    def segments(self, gradients: Gradients) -> list[Segment]:
        """Return what each rank sends of a step, by rank; their result is the mean."""
        flat = [torch.cat([of_rank[name].reshape(-1) for name in self._shapes]) for of_rank in gradients]
        if not self._residues:
            return [float_segment(own, self._wire, mean=True) for own in flat]
        return [ResidueLanes(own, kept, self._wire, mean=True) for own, kept in zip(flat, self._residues, strict=True)]

    def split(self, mean: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the parts of a mean by parameter name."""
        parts = torch.split(mean, [shape.numel() for shape in self._shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}

    def residue_norm(self) -> float:
        """Return the L2 norm of a rank's residue, the mean over the ranks."""
        norms = [float(residue.double().norm()) for residue in self._residues]
        return sum(norms) / len(norms) if norms else 0.0
