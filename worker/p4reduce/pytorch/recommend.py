"""Which compressor suits an optimizer, and the first moment that it takes over from it.

A first moment after a compressor costs loss with AdamW (docs/study.md). So the compressor computes it before, on each
rank (`momentum`), and the optimizer's beta1 is 0 meanwhile.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from p4reduce.compressors import AdaComp, Compressor, Policy, Quantize

_log = logging.getLogger(__name__)


class Recommendation(NamedTuple):
    """A compressor for an optimizer and a model."""

    compressor: Compressor
    why: str
    """The reason, in one line."""


def _for_adam(beta1: float) -> Compressor:
    return AdaComp(Policy(linear=50, recurrent=50, embedding=50), momentum=beta1)


SETTINGS: Final[dict[str, tuple[Callable[[float], Compressor], str]]] = {
    "betas": (_for_adam, "AdaComp in bins of 50, of each rank's first moment: after it, the moment costs loss"),
    "momentum": (lambda _beta1: AdaComp(), "AdaComp in bins of 50 for convolutions and 500 for others suits SGD"),
    "": (lambda _beta1: Quantize(8), "8 bits with feedback: AdaComp was not trained with this optimizer"),
}
"""Setting of an optimizer's groups, the first that fits -> the compressor for its beta1, and the reason."""


def recommend(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Recommendation:
    """Return what docs/study.md recommends for this optimizer, bound to the layers of the model.

    Changes nothing: `DDPState(comm, "auto", module=model, optimizer=optimizer)` takes it, and the optimizer's first
    moment over. Raises ValueError where the optimizer's groups have different first moments.
    """
    make, why = next(row for setting, row in SETTINGS.items() if not setting or setting in optimizer.param_groups[0])
    compressor = make(first_moment(optimizer))
    compressor.bind(model)
    return Recommendation(compressor, f"{type(optimizer).__name__}: {why} (docs/study.md)")


def first_moment(optimizer: torch.optim.Optimizer) -> float:
    """Return beta1, 0 where there is none; ValueError where groups differ in it."""
    found = {float(group["betas"][0]) if "betas" in group else 0.0 for group in optimizer.param_groups}
    if len(found) > 1:
        raise ValueError(f"the optimizer's groups have first moments of {sorted(found)}: give all the same beta1")
    return found.pop()


class FirstMoment:
    """The beta1 of an optimizer that a compressor has taken over: 0 until it is given back.

    What the optimizer's `state_dict` returns meanwhile has the beta1 of before.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.beta1 = first_moment(optimizer)
        self._optimizer = optimizer
        self._taken = bool(self.beta1)
        self._saved = optimizer.register_state_dict_post_hook(lambda _, state: self._restore(state["param_groups"]))
        self.take()

    def take(self) -> None:
        """Set beta1 to 0, also after `load_state_dict` or a scheduler has set it."""
        if self._taken:
            _set_beta1(self._optimizer.param_groups, 0.0)

    def give_back(self) -> None:
        """Restore beta1. Idempotent."""
        self._restore(self._optimizer.param_groups)
        self._taken = False

    def _restore(self, groups: Iterable[dict[str, Any]]) -> None:
        if self._taken:
            _set_beta1(groups, self.beta1)


def _set_beta1(groups: Iterable[dict[str, Any]], beta1: float) -> None:
    for group in groups:
        group["betas"] = (beta1, *group["betas"][1:])


_watched: weakref.WeakSet[AdaComp] = weakref.WeakSet()


def warn_of_first_moment(compressor: Compressor) -> None:
    """Log a warning, once, when an optimizer with a first moment makes a step after AdaComp."""
    if isinstance(compressor, AdaComp):
        _watched.add(compressor)


def _look(optimizer: torch.optim.Optimizer, _arguments: Any, _keywords: Any) -> None:
    if _watched and any(group.get("betas", (0.0,))[0] for group in optimizer.param_groups):
        _watched.clear()
        _log.warning(
            'AdaComp costs loss before the first moment of %s: give DDPState "auto" and the optimizer, or AdaComp a '
            "momentum and the optimizer a beta1 of 0 (docs/compressors.md#momentum-correction)",
            type(optimizer).__name__,
        )


register_optimizer_step_post_hook(_look)
