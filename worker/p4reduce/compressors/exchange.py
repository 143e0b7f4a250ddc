"""One step's all-reduce of some parameters' gradients with AdaComp, as one collective on the switch.

Three segments travel together:

    lanes      the signs of all compressed parameters, as narrow a lane as the world size allows
    float32    the gradients that stay dense (biases, norms)
    float32    this step's local scale of each compressed parameter, whose mean is the next step's shared
    scale

Only the very first exchange of a parameter has no shared scale to send with. It gets one from an extra,
tiny all-reduce (one float a parameter). A dense first step would have needed no extra collective, but would
send the whole gradient once and make the first step unlike the others.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from p4reduce.codecs import Float32, Lanes, Segment
from p4reduce.codecs.lanes import narrowest
from p4reduce.communicator import Communicator
from p4reduce.compressors.adacomp import AdaComp

__all__ = ["all_reduce_compressed"]


def all_reduce_compressed(
    comm: Communicator, compressor: AdaComp, gradients: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The mean over all ranks of each gradient, float32 in the gradient's shape; the same bits on every rank.

    `gradients`: float32 on the CPU, by parameter name, the same names and shapes in the same order on every
    rank. Raises InvalidTensor, before anything is sent, when one holds a NaN or an infinity, and
    CollectiveError when the ranks are at odds; the compressor's state is then no longer of use with this
    communicator.
    """
    compressed = [key for key, gradient in gradients.items() if compressor.bin_size(gradient.shape) is not None]
    dense = [key for key in gradients if key not in set(compressed)]
    _agree_on_first_scales(comm, compressor, {key: gradients[key] for key in compressed})
    sent = [compressor.compress(key, gradients[key], compressor.shared_scale(key)) for key in compressed]

    parts: list[tuple[str, Segment]] = []
    if compressed:
        signs = torch.cat([one.signs for one in sent])
        parts.append(("signs", Lanes(signs, narrowest(comm.world_size), bound=1, name="the signs of AdaComp")))
        parts.append(("scales", _mean_scales([one.local_scale for one in sent])))
    if dense:
        flat = torch.cat([gradients[key].detach().reshape(-1) for key in dense])
        parts.append(("dense", Float32(flat, mean=True, name=f"the dense gradients ({', '.join(dense)})")))
    received = comm.all_reduce_segments([segment for _, segment in parts], name="adacomp")
    results = {name: result for (name, _), result in zip(parts, received, strict=True)}

    means: dict[str, torch.Tensor] = {}
    if compressed:
        for key, total in _cut(results["signs"], compressed, gradients):
            means[key] = total.to(torch.float32) * (_shared(compressor, key) / comm.world_size)
        _take_scales(compressor, compressed, results["scales"])
    if dense:
        means.update(_cut(results["dense"], dense, gradients))
    return means


def _agree_on_first_scales(comm: Communicator, compressor: AdaComp, gradients: Mapping[str, torch.Tensor]) -> None:
    """Give a shared scale to the parameters that have none yet: their mean local scale of this very step."""
    new = [key for key in gradients if compressor.shared_scale(key) is None]
    if new:
        local = _mean_scales([compressor.local_scale(key, gradients[key]) for key in new])
        _take_scales(compressor, new, *comm.all_reduce_segments([local], name="adacomp first scales"))


def _take_scales(compressor: AdaComp, keys: Sequence[str], means: torch.Tensor) -> None:
    for key, scale in zip(keys, means.tolist(), strict=True):
        compressor.set_shared_scale(key, scale)


def _mean_scales(values: Sequence[float]) -> Float32:
    return Float32(torch.from_numpy(np.array(values, np.float32)), mean=True, name="the scales of AdaComp")


def _shared(compressor: AdaComp, key: str) -> float:
    scale = compressor.shared_scale(key)
    assert scale is not None, f"{key} was compressed without a shared scale"
    return scale


def _cut(
    flat: torch.Tensor, keys: Sequence[str], gradients: Mapping[str, torch.Tensor]
) -> list[tuple[str, torch.Tensor]]:
    """A flat tensor as one tensor for each key, in its gradient's shape."""
    pieces = torch.split(flat, [gradients[key].numel() for key in keys])
    return [(key, piece.view(gradients[key].shape)) for key, piece in zip(keys, pieces, strict=True)]
