"""What every compressor is: `compress` turns a gradient into one of four messages, `decompress` an answer into a mean.

    message    wire form     what travels                                    the answer to it
    Integers   sum           small integers in lanes, blocks of zeros not    int32 sums
    Values     sum           floats, blocks of zeros not                     Summed (mean, what this rank sent)
    Stream     gather        this rank's coordinates, beside all others'     RanksCoordinates
    Support    shared        the leader's choice of elements, then Values    (chosen elements, Summed there)

Exchange (exchange.py) carries them; no compressor knows about collectives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.codecs.coordinates import Part
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.residues import Residues
from p4reduce.errors import LaneOverflow
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.lanes import check_lanes, check_width, narrowest

FLOAT_BITS = 32
Bytes = NDArray[np.uint8]


class Form(StrEnum):
    """How a compressed gradient travels."""

    SUM = "sum"
    GATHER = "gather"
    SHARED = "shared"


AUTO = "auto"
RECENT_STEPS = 2
"""Steps that count for the cost of the next one."""


@dataclass(frozen=True)
class Integers:
    """Form sum: integers times a unit that is the same on all ranks."""

    values: torch.Tensor  #: int8 or int32 [elements]
    bound: int  #: no rank's |value| is larger
    unit: float


@dataclass(frozen=True)
class Values:
    """Form sum: floats in 8, 16 or 32 bits."""

    values: torch.Tensor  #: float32 [elements]
    bits: int = 32


@dataclass(frozen=True)
class Stream:
    """Form gather: this rank's encoded coordinates (codecs/coordinates.py)."""

    data: Bytes
    part: Part


@dataclass(frozen=True)
class Support:
    """Form shared: on the leader the encoded choice of elements, no bytes elsewhere."""

    data: Bytes
    part: Part  #: its sender is the leader


Message = Integers | Values | Stream | Support


class Compressor(ABC):
    """The state of one rank's compression, keyed by parameter name: DDP rebuilds its buckets after the first step.

    A subclass names its `forms`, and implements `compress` and `decompress`, and `values_at` for the form shared.
    """

    name: ClassVar[str]
    forms: ClassVar[tuple[Form, ...]]

    def __init__(self, policy: Policy, form: str = AUTO, *, warmup_steps: int = 0) -> None:
        """`form`: one of `forms`, or "auto" for the cheapest. A parameter's first `warmup_steps` steps are dense."""
        if form not in (AUTO, *self.forms):
            raise ValueError(f"{self.name} travels in the forms {', '.join((AUTO, *self.forms))}, not in {form!r}")
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps is {warmup_steps}; give 0 or more")
        if not isinstance(policy, Policy):
            raise ValueError(f"policy is {policy!r}; give a Policy, and other settings by name")
        self.policy = policy
        self.form = form
        self.warmup_steps = warmup_steps
        self._residues = Residues()
        self._kept_back: dict[str, torch.Tensor] = {}
        self._steps: dict[str, int] = {}
        self._step_bits: dict[str, tuple[int, int]] = {}
        self._bits: dict[str, list[int]] = {}  # by parameter: dense bits, sent bits
        self._counts: dict[str, list[float]] = {}

    @classmethod
    def default_policy(cls) -> Policy:
        """What counts where no policy is given."""
        return Policy()

    def bind(self, module: torch.nn.Module) -> None:
        """Learn from the module which parameter belongs to which kind of layer."""
        self.policy.bind(module)

    def auto_forms(self) -> tuple[Form, ...]:
        """The forms among which "auto" chooses."""
        return self.forms

    def is_dense(self, key: str, shape: torch.Size) -> bool:
        """Whether this parameter's next gradient travels whole: by the policy, or for the warm-up."""
        return self.policy.length(key, shape) is None or self.step_of(key) < self.warmup_steps

    def step_of(self, key: str) -> int:
        """How many gradients of this parameter have been exchanged."""
        return self._steps.get(key, 0)

    @abstractmethod
    def compress(self, key: str, gradient: torch.Tensor, form: Form, lease: Lease) -> Message:
        """What this rank sends of this step's gradient (float32, finite, any layout); the rest stays for later."""

    @abstractmethod
    def decompress(self, key: str, message: Message, answer: Any, lease: Lease) -> torch.Tensor:
        """The mean over all ranks, float32 [elements], the same bits on each, from the answer to a message."""

    def values_at(self, key: str, support: torch.Tensor) -> Values:
        """Form shared: this rank's values at the leader's choice, int64 [chosen]."""
        raise NotImplementedError(f"{self.name} has no form {Form.SHARED}")

    def first_facts(self, key: str, gradient: torch.Tensor) -> list[float]:
        """What all ranks must know of each other before they compress `key` in the form sum; mostly nothing."""
        return []

    def facts(self, key: str, form: Form) -> list[float]:
        """What all ranks should know of each other after this step, where the form itself does not tell it."""
        return []

    def agree(self, key: str, facts: NDArray[np.float32]) -> None:  # noqa: B027 (most have no facts)
        """Take the facts of all ranks, float32 [world_size, facts]."""

    def expected_bytes(self, key: str, shape: torch.Size, form: Form, lease: Lease) -> float | None:
        """Expected payload bytes down in this form, by what all ranks know of the last steps; None before any."""
        return None

    def lane_bits(self, bound: int, lease: Lease) -> int:
        """Width of the lanes: the job's, or the narrowest. LaneOverflow when N ranks of `bound` do not fit."""
        if lease.lane_bits:
            check_width(lease.lane_bits)
            check_lanes(lease.world_size, bound, lease.lane_bits, f"{self.name} in job {lease.name!r}")
        if bound > lease.lane_bound and (lease.lane_bits or lease.lane_bound > 1):
            raise LaneOverflow(
                f"{self.name} sends integers up to {bound}, and job {lease.name!r} was created for |t| <= "
                f"{lease.lane_bound}: create it with --lane-bound {bound}"
            )
        return lease.lane_bits or narrowest(lease.world_size, bound)

    def check(self, lease: Lease) -> None:  # noqa: B027 (many fit every job)
        """Raise LaneOverflow when this compressor's settings do not fit the job."""

    def counted(self, key: str, elements: int, sent_bits: int) -> None:
        """Count a step of `key` for the effective compression rate, once it has succeeded."""
        self._step_bits[key] = FLOAT_BITS * elements, sent_bits

    def note(self, key: str, counts: Sequence[float]) -> None:
        """Keep what a step of `key` moved, the same numbers on all ranks, for the cost of the next ones.

        Selections vary much from one step to the next: what is kept is a running mean over about RECENT_STEPS.
        """
        old = counts if self.step_of(key) < 2 else self._counts.get(key, counts)  # the first step is not typical
        self._counts[key] = [a + (b - a) / RECENT_STEPS for a, b in zip(old, counts, strict=True)]

    def keep_back(self, key: str, residue: torch.Tensor) -> None:
        """What this step leaves for later ones; it counts once the step has succeeded, so an error loses nothing."""
        self._kept_back[key] = residue

    def stepped(self, key: str) -> None:
        """One more gradient of `key` was exchanged."""
        if key in self._kept_back:
            self._residues[key] = self._kept_back.pop(key)
        if key in self._step_bits:
            dense, sent = self._bits.get(key, (0, 0))
            more_dense, more_sent = self._step_bits.pop(key)
            self._bits[key] = [dense + more_dense, sent + more_sent]
        self._steps[key] = self.step_of(key) + 1

    def rate_of(self, *keys: str) -> float:
        """32 D / bits sent of these parameters (all of them without keys), over every compressed step so far.

        Bits as the method's paper counts them, not what a switch saw: that is in the communicator's `stats`. NaN
        before the first step.
        """
        counts = [self._bits.get(key, [0, 0]) for key in (keys or self._bits)]
        sent = sum(one[1] for one in counts)
        return sum(one[0] for one in counts) / sent if sent else float("nan")

    @property
    def effective_compression_rate(self) -> float:
        """The rate over all parameters that are compressed; see `rate_of`."""
        return self.rate_of()

    def agreed(self, keys: Iterable[str]) -> str:
        """What has to be the same on all ranks, as text: ranks at odds get an error instead of different gradients."""
        return f"{self.name}, steps {[self.step_of(key) for key in keys]}"

    def residue(self, key: str) -> torch.Tensor | None:
        """What is kept back of `key` for later steps, float32 [elements]; None before its first step."""
        return self._residues.get(key)

    def residue_norm(self) -> float:
        """The L2 norm of everything kept back for later steps."""
        return self._residues.norm()

    def state_dict(self) -> dict[str, Any]:
        """Everything a checkpoint needs. Each rank's is its own: residues differ between ranks."""
        return {
            "compressor": self.name,
            "residues": self._residues.state_dict(),
            "steps": dict(self._steps),
            "bits": {key: list(bits) for key, bits in self._bits.items()},
            "counts": {key: list(counts) for key, counts in self._counts.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up where `state_dict` was made. All ranks must load the same step's state.

        Raises ValueError for the state of another compressor.
        """
        if state["compressor"] != self.name:
            raise ValueError(f"this is the state of {state['compressor']}, not of {self.name}: load it into that")
        self._residues.load_state_dict(state["residues"])
        self._kept_back, self._step_bits = {}, {}  # of a step that failed
        self._steps = dict(state["steps"])
        self._bits = {key: list(bits) for key, bits in state["bits"].items()}
        self._counts = {key: list(counts) for key, counts in state["counts"].items()}
