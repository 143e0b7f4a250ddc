"""The interface of a compressor: `compress` turns a gradient into a message, `decompress` the answer into a mean.

    message    wire form     what is sent                                    the answer to it
    Integers   sum           small integers in lanes, blocks of zeros not    int32 sums
    Values     sum           floats, blocks of zeros not                     Summed (mean, what this rank sent)
    Stream     gather        this rank's coordinates, beside all others'     RanksCoordinates
    Support    shared        the leader's choice of elements, then Values    AtSupport (indices, mean, sent)

Both are functions of values (step.py) and change nothing. `exchange.py` sends the messages and commits the new
states; a compressor makes no collective calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.codecs import coordinates
from p4reduce.compressors.forms import Form
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.states import ParameterStates
from p4reduce.compressors.step import Answer, Compressed, Decompressed, ParameterState, Step
from p4reduce.group import Group

AUTO = "auto"
"""Instead of a form: a method of several chooses for each parameter and step."""


class Compressor(ParameterStates, ABC):
    """A compression method, with its state of one rank's parameters.

    A subclass names its `forms` and implements `compress` and `decompress`; `@register` (registry.py) gives it its
    `name`. The other methods have defaults for a method that needs no more.
    """

    name: ClassVar[str]
    forms: ClassVar[tuple[Form, ...]]

    def __init__(self, policy: Policy, form: str, *, warmup_steps: int = 0, momentum: float = 0.0) -> None:
        """`form`: one of `forms`, or where there are several "auto" (`form_of`).

        A parameter's first `warmup_steps` steps are dense.

        `momentum`: of momentum correction (Lin et al., Deep Gradient Compression, ICLR 2018, section 3.2), from 0 to
        less than 1; 0: none. Each rank compresses the moving average of its own gradients, for an optimizer without a
        first moment, `AdamW(betas=(0.0, beta2))` or `SGD(momentum=0)` (momentum.py).
        """
        known = (AUTO, *self.forms) if len(self.forms) > 1 else self.forms
        if form not in known:
            raise ValueError(f"{self.name} travels in the forms {', '.join(known)}, not in {form!r}")
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps is {warmup_steps}; give 0 or more")
        if not isinstance(policy, Policy):
            raise ValueError(f"policy is {policy!r}; give a Policy, and other settings by name")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum is {momentum:g}; give 0 or more, less than 1")
        super().__init__(momentum)
        self.policy = policy
        self.form = form
        self.warmup_steps = warmup_steps
        if self.form != Form.SUM:
            coordinates.load_kernels()  # now, and not in a step, where the other ranks would wait

    # ----- a step

    @abstractmethod
    def compress(self, step: Step) -> Compressed:
        """Return what this rank sends of the gradient, and what it keeps."""

    @abstractmethod
    def decompress(self, step: Step, compressed: Compressed, answer: Answer) -> Decompressed:
        """Return the mean over all ranks, the same bits on each, with this rank's new state."""

    def compress_all(self, steps: Mapping[str, Step]) -> dict[str, Compressed]:
        """Compress a bucket's parameters. A method may do it for all of them at once, with the same result."""
        return {key: self.compress(step) for key, step in steps.items()}

    def decompress_all(
        self, steps: Mapping[str, Step], compressed: Mapping[str, Compressed], answers: Mapping[str, Answer]
    ) -> dict[str, Decompressed]:
        """Decompress a bucket's parameters; as `compress_all`."""
        return {key: self.decompress(step, compressed[key], answers[key]) for key, step in steps.items()}

    # ----- settings

    @classmethod
    def default_policy(cls) -> Policy:
        """Return the default policy."""
        return Policy()

    def bind(self, module: torch.nn.Module) -> None:
        """Read from the module which parameter belongs to which kind of layer."""
        self.policy.bind(module)

    def check(self, group: Group) -> None:  # noqa: B027 (many fit every group)
        """Raise LaneOverflowError when this compressor's settings do not fit the group."""

    def length_of(self, key: str, shape: torch.Size) -> int:
        """Return the elements in a bin, chunk or block. Raises ValueError for a parameter that stays dense."""
        length = self.policy.length(key, shape)
        if length is None:
            raise ValueError(f"the policy sends {key!r} dense: it is not compressed")
        return length

    def is_dense(self, key: str, shape: torch.Size) -> bool:
        """Return whether this parameter's next gradient is sent dense: by the policy, or for the warm-up."""
        return self.policy.length(key, shape) is None or self.state_of(key).steps < self.warmup_steps

    def form_of(self, key: str, shape: torch.Size, group: Group) -> Form:
        """Return the form of this parameter's next step, by what all ranks know."""
        return Form(self.form)

    # ----- what ranks agree on

    def initial_metadata(self, step: Step) -> tuple[float, ...]:
        """Return floats that all ranks must have of each other before `compress`; empty for most methods and steps."""
        return ()

    def agreed_scale(self, metadata: NDArray[np.float32]) -> float:
        """Return the scale that follows from all ranks' initial metadata, float32 [world_size, metadata]."""
        raise NotImplementedError(f"{self.name} gives initial metadata: it must say what scale follows from them")

    def agreement_text(self, states: Iterable[ParameterState]) -> str:
        """Return what must be equal on all ranks before a step; ranks that differ get an error, not other gradients."""
        return f"{self.name}, momentum {self.momentum:g}, steps {[state.steps for state in states]}"
