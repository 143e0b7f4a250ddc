"""The state that a compressor keeps of all parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from p4reduce.compressors.step import ParameterState

UNSEEN = ParameterState()


class ParameterStates:
    """The states of one rank's parameters, by name: DDP rebuilds its buckets after the first step."""

    name: ClassVar[str]

    def __init__(self, momentum: float = 0.0) -> None:
        self.momentum = momentum
        self._states: dict[str, ParameterState] = {}

    def state_of(self, key: str) -> ParameterState:
        """Return the state of this parameter."""
        return self._states.get(key, UNSEEN)

    def commit_step(self, states: Mapping[str, ParameterState]) -> None:
        """Store the states after a step of these parameters; nothing else in a step changes state."""
        self._states.update(states)

    def residue(self, key: str) -> torch.Tensor | None:
        """Return what is kept back of `key` for later steps, float32 [elements]; None before its first step."""
        return self.state_of(key).residue

    def residue_norm(self) -> float:
        """Return the L2 norm of everything kept back for later steps."""
        squares = [float(residue.double().square().sum()) for residue in self._residues().values()]
        return float(sum(squares) ** 0.5)

    def rate_of(self, *keys: str) -> float:
        """Return 32 D / bits sent of these parameters (all of them without keys), over every compressed step so far.

        Bits as the method's paper counts them, not what a switch saw: that is in the communicator's `stats`. NaN
        before the first step.
        """
        counted = [self.state_of(key).bits or (0, 0) for key in (keys or self._states)]
        sent = sum(bits[1] for bits in counted)
        return sum(bits[0] for bits in counted) / sent if sent else float("nan")

    @property
    def effective_compression_rate(self) -> float:
        """The rate over all parameters that are compressed; see `rate_of`."""
        return self.rate_of()

    def state_dict(self) -> dict[str, Any]:
        """Return everything a checkpoint needs. Each rank's is its own: residues differ between ranks."""
        known = self._states.items()
        return {
            "compressor": self.name,
            "residues": {key: residue.clone() for key, residue in self._residues().items()},
            "momentum": self.momentum,
            "velocities": {key: state.velocity.clone() for key, state in known if state.velocity is not None},
            "steps": {key: state.steps for key, state in known},
            "bits": {key: list(state.bits) for key, state in known if state.bits is not None},
            "selected": {key: state.selected for key, state in known if state.selected is not None},
            "scales": {key: state.scale for key, state in known if state.scale is not None},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned. All ranks must load the same step's state.

        Raises ValueError for the state of another compressor, or of one with momentum where this has none.
        """
        if state["compressor"] != self.name:
            raise ValueError(f"this is the state of {state['compressor']}, not of {self.name}: load it into that")
        momentum, velocities = state.get("momentum", 0.0), state.get("velocities", {})  # version 0.2 had none
        if bool(momentum) != bool(self.momentum):
            raise ValueError(f"this is the state of {self.name} with momentum={momentum:g}: give it the same")
        residues, bits = state["residues"], state["bits"]
        scales = state.get("scales", {})  # version 0.1 saved them only of compressors that have any
        self._states = {
            key: ParameterState(
                steps=state["steps"].get(key, 0),
                residue=residues[key].clone() if key in residues else None,
                scale=scales.get(key),
                selected=state.get("selected", {}).get(key),
                bits=(bits[key][0], bits[key][1]) if key in bits else None,
                velocity=velocities[key].clone() if key in velocities else None,
            )
            for key in {**state["steps"], **residues, **scales}
        }

    def _residues(self) -> dict[str, torch.Tensor]:
        return {key: state.residue for key, state in self._states.items() if state.residue is not None}
