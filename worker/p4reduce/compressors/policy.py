"""Which parameters are compressed, and in bins of how many elements: by kind of layer, and by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal

import torch
from torch import nn

from p4reduce.compressors.settings import is_whole

DENSE: Final = "dense"
Length = int | Literal["dense"]
"""Elements in a bin (of AdaComp), a chunk (of ScaleCom) or a block (of the block sparsifiers); or not compressed."""

_KINDS: Final[tuple[tuple[str, tuple[type[nn.Module], ...]], ...]] = (
    ("conv", (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)),
    ("linear", (nn.Linear, nn.Bilinear)),
    ("recurrent", (nn.RNNBase, nn.RNNCellBase)),
    ("embedding", (nn.Embedding, nn.EmbeddingBag)),
)
KINDS: Final = tuple(kind for kind, _ in _KINDS)
_NORMS: Final = (
    *(nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.SyncBatchNorm),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)


@dataclass
class Policy:
    """Lengths by kind of layer; `names` overrides them by pattern, the first that matches counts.

    A bias, a norm layer's parameter, and anything else of fewer than two dimensions is dense unless `names` says
    otherwise. Where the module (`bind`) does not give the kind, the shape does: two dimensions are a linear layer, more
    a convolution.
    """

    conv: Length = 50
    linear: Length = 500
    recurrent: Length = 500
    embedding: Length = 500
    names: Sequence[tuple[str, Length]] = ()
    """(pattern, length) pairs, e.g. ("fc2.*", "dense") or ("conv?.weight", 100); `*`, `?` and `[abc]` as in a shell."""
    _kinds: dict[str, str | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.names, Mapping):
            raise ValueError("names is a sequence of (pattern, length) pairs: give tuple(names.items())")
        kinds = [(kind, getattr(self, kind)) for kind, _ in _KINDS]
        for what, length in [*kinds, *((f"names: {pattern!r}", length) for pattern, length in self.names)]:
            if length != DENSE and not is_whole(length, 1):
                raise ValueError(f'{what} is {length!r}; give a number of elements, or "dense"')

    def bind(self, module: nn.Module) -> None:
        """Classify layers by their type instead of their parameters' shapes.

        Raises ValueError when a name pattern matches no parameter.
        """
        known = [name for name, _ in module.named_parameters()]
        idle = [pattern for pattern, _ in self.names if not any(fnmatchcase(name, pattern) for name in known)]
        if idle:
            raise ValueError(f"policy: no parameter matches {', '.join(idle)}; the module has {', '.join(known)}")
        self._kinds = {}
        for prefix, layer in module.named_modules():
            kind = next((kind for kind, types in _KINDS if isinstance(layer, types)), None)
            for name, parameter in layer.named_parameters(recurse=False):
                full = f"{prefix}.{name}" if prefix else name
                if kind is not None and parameter.dim() >= 2:
                    self._kinds[full] = kind
                elif isinstance(layer, _NORMS):  # of several dimensions too, e.g. LayerNorm((8, 8))
                    self._kinds[full] = None

    def kind(self, name: str, shape: torch.Size) -> str | None:
        """Return conv, linear, recurrent or embedding; None for biases, norms and other parameters."""
        if name in self._kinds:
            return self._kinds[name]
        if len(shape) < 2:
            return None
        return "linear" if len(shape) == 2 else "conv"

    def length(self, name: str, shape: torch.Size) -> int | None:
        """Return the elements in a bin of this parameter; None: it stays dense."""
        for pattern, length in self.names:
            if fnmatchcase(name, pattern):
                return None if length == DENSE else int(length)
        kind = self.kind(name, shape)
        if kind is None:
            return None
        found = getattr(self, kind)
        return None if found == DENSE else int(found)
