"""The interface of a compressor: `compress` turns gradients into messages, `decompress` the answers into means.

    message    wire form     what is sent                                    the answer to it
    Integers   sum           small integers in lanes, blocks of zeros not    int32 sums
    Values     sum           floats, blocks of zeros not                     Summed (mean, what this rank sent)
    Stream     gather        this rank's coordinates, beside all others'     RanksCoordinates
    Support    shared        the leader's choice of elements, then Values    AtSupport (indices, mean, sent)

Both take all compressed parameters of a bucket, as a call costs more than a small parameter; `PerParameter` is for a
method that works on one at a time. They are functions of values (step.py) and change nothing. `exchange.py` sends the
messages and commits the new states; a compressor makes no collective calls.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.compressors.messages import Form
from p4reduce.compressors.policy import KINDS, Policy
from p4reduce.compressors.settings import check_whole, is_number
from p4reduce.compressors.step import Answer, Compressed, Decompressed, ParameterState, Step
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_runtime import kernels

_UNSEEN = ParameterState()
AUTO = "auto"
"""The value of `form` with which a method of several forms chooses one for each parameter and step."""


class Compressor(ABC):
    """A compression method, with its state of one rank's parameters.

    A subclass names its `forms` and implements `compress` and `decompress`; `@register` gives it its
    `name`. The other methods have defaults for a method that needs no more.
    """

    name: ClassVar[str]
    forms: ClassVar[tuple[Form, ...]]

    def __init__(self, policy: Policy, form: str, *, warmup_steps: int = 0, momentum: float = 0.0) -> None:
        """`form`: one of `forms`, or where there are several "auto" (`form_of`).

        A parameter's first `warmup_steps` steps are dense.

        `momentum`: factor of momentum correction (Lin et al., Deep Gradient Compression, ICLR 2018, section 3.2), from
        0 to less than 1; 0: none. Each rank compresses the moving average of its own gradients, for an optimizer
        without a first moment, `AdamW(betas=(0.0, beta2))` or `SGD(momentum=0)` (exchange.py).
        """
        known = (AUTO, *self.forms) if len(self.forms) > 1 else self.forms
        if form not in known:
            raise ValueError(f"{self.name} has the forms {', '.join(known)}, not {form!r}")
        check_whole("warmup_steps", warmup_steps, 0)
        if not isinstance(policy, Policy):
            raise ValueError(f"policy is {policy!r}; give a Policy, and other settings by name")
        if not (is_number(momentum) and 0 <= momentum < 1):
            raise ValueError(f"momentum is {momentum!r}; give 0 or more, less than 1")
        self.momentum = momentum
        self._states: dict[str, ParameterState] = {}  # by name: DDP rebuilds its buckets after the first step
        self.policy = policy
        self.form = form
        self.warmup_steps = warmup_steps
        if self.form != Form.SUM:
            kernels.preload("p4reduce.codecs.coordinates_kernels")  # now: in a step other ranks would wait
        if momentum:
            kernels.preload("p4reduce.compressors.kernels")

    # ----- a step

    @abstractmethod
    def compress(self, steps: Sequence[Step]) -> list[Compressed]:
        """Return what this rank sends of each gradient, and what it keeps."""

    @abstractmethod
    def decompress(
        self, steps: Sequence[Step], compressed: Sequence[Compressed], answers: Sequence[Answer]
    ) -> list[Decompressed]:
        """Return the mean over all ranks of each gradient, the same bits on each rank, with this rank's new state."""

    # ----- state

    def state_of(self, key: str) -> ParameterState:
        """Return the state of this parameter."""
        return self._states.get(key, _UNSEEN)

    def commit_step(self, states: Mapping[str, ParameterState]) -> None:
        """Store the states after a step of these parameters; nothing else in a step changes state."""
        self._states.update(states)

    def residue(self, key: str) -> torch.Tensor | None:
        """Return what was not sent of earlier gradients of `key`, float32 [elements]; None before its first step."""
        return self.state_of(key).residue

    def residue_norm(self) -> float:
        """Return the L2 norm of all parameters' residues."""
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

    def forget(self) -> None:
        """Forget all states, as if no step had been made."""
        self._states = {}

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

    # ----- settings

    @classmethod
    def default_policy(cls) -> Policy:
        """Return the policy that is taken where none is given."""
        return Policy()

    def bind(self, module: torch.nn.Module) -> None:
        """Read from the module which parameter belongs to which kind of layer."""
        self.policy.bind(module)

    def check(self, group: Lease) -> None:  # noqa: B027 (many fit every group)
        """Raise LaneOverflowError when this compressor's settings do not fit the group."""

    def is_dense(self, key: str, shape: torch.Size) -> bool:
        """Return whether this parameter's next gradient is sent dense: by the policy, or for the warm-up."""
        return self.policy.length(key, shape) is None or self.state_of(key).steps < self.warmup_steps

    def form_of(self, key: str, shape: torch.Size, group: Lease) -> Form:
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


class PerParameter(Compressor):
    """A compressor that works on one parameter at a time."""

    @abstractmethod
    def compress_one(self, step: Step) -> Compressed:
        """Return what this rank sends of the gradient, and what it keeps."""

    @abstractmethod
    def decompress_one(self, step: Step, compressed: Compressed, answer: Answer) -> Decompressed:
        """Return the mean over all ranks, the same bits on each, with this rank's new state."""

    def compress(self, steps: Sequence[Step]) -> list[Compressed]:
        return [self.compress_one(step) for step in steps]

    def decompress(
        self, steps: Sequence[Step], compressed: Sequence[Compressed], answers: Sequence[Answer]
    ) -> list[Decompressed]:
        return [self.decompress_one(*one) for one in zip(steps, compressed, answers, strict=True)]


Class = TypeVar("Class", bound=type[Compressor])

_classes: dict[str, type[Compressor]] = {}


def register(name: str) -> Callable[[Class], Class]:
    """Register a compressor under a name; a class decorator.

    @register("top-signs")              # then by_name("top-signs", k=25), once the module is imported
    class TopSigns(Compressor): ...

    Raises ValueError when another has that name.
    """
    if not isinstance(name, str):
        raise ValueError(f'give the compressor a name: @register("...") and not @register on {name!r}')

    def under_this_name(cls: Class) -> Class:
        known = _classes.setdefault(name, cls)
        if known is not cls:
            raise ValueError(f"two compressors are called {name!r}: {known.__name__} and {cls.__name__}")
        cls.name = name
        return cls

    return under_this_name


def by_name(name: str, /, **options: Any) -> Compressor:
    """Make the compressor of this name with the keywords of its class. Raises ValueError for an unknown name."""
    if name not in _classes:
        raise ValueError(f"unknown compressor {name!r}; known are {', '.join(_classes)}")
    return _classes[name](**options)


def by_text(text: str) -> Compressor:
    """Make the compressor of a text: "quantize", or with settings "adacomp:linear=50,momentum=0.9".

    A setting is a keyword of its class that takes a number or a word, or a length of its policy. Raises ValueError.
    """
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    lengths: dict[str, Any] = {}
    for setting in rest.split(",") if rest else ():
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"{text!r}: {setting!r} is no setting; write NAME:SETTING=VALUE,SETTING=VALUE")
        if key in options or key in lengths:
            raise ValueError(f"{text!r}: {key} is given twice; give it once")
        (lengths if key in KINDS else options)[key] = _value_of(value)
    try:
        return by_name(name, **options, **({"policy": Policy(**lengths)} if lengths else {}))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r}: {error}") from error


def _value_of(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
