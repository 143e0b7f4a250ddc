"""The policy: which parameters are compressed, and in bins of what length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from p4reduce.compressors import Policy


class Zoo(nn.Module):
    """A layer of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 8)
        self.bag = nn.EmbeddingBag(7, 8)
        self.conv1 = nn.Conv1d(2, 3, 3)
        self.conv2 = nn.Conv2d(2, 3, 3)
        self.up = nn.ConvTranspose2d(2, 3, 3)
        self.fc = nn.Linear(8, 4)
        self.pair = nn.Bilinear(2, 3, 4)
        self.lstm = nn.LSTM(8, 5, proj_size=3)
        self.cell = nn.GRUCell(8, 5)
        self.batch = nn.BatchNorm2d(3)
        self.layer = nn.LayerNorm((4, 6))
        self.group = nn.GroupNorm(1, 4)
        self.attention = nn.MultiheadAttention(8, 2)
        self.other = nn.Parameter(torch.zeros(3, 4))
        self.cube = nn.Parameter(torch.zeros(3, 4, 5))
        self.scalar = nn.Parameter(torch.zeros(()))


def lengths(policy: Policy, module: nn.Module) -> dict[str, int | None]:
    policy.bind(module)
    return {name: policy.length(name, p.shape) for name, p in module.named_parameters()}


def test_the_length_follows_the_kind_of_layer() -> None:
    found = lengths(Policy(conv=1, linear=2, recurrent=3, embedding=4), Zoo())
    binned: dict[int, str] = {
        1: "conv1.weight conv2.weight up.weight cube",
        2: "fc.weight pair.weight attention.in_proj_weight attention.out_proj.weight other",  # two of them by shape
        3: "lstm.weight_ih_l0 lstm.weight_hh_l0 lstm.weight_hr_l0 cell.weight_ih cell.weight_hh",
        4: "embedding.weight bag.weight",
    }
    expected = {name: length for length, names in binned.items() for name in names.split()}
    assert {name: length for name, length in found.items() if length is not None} == expected
    dense = {name for name, length in found.items() if length is None}
    assert {"fc.bias", "lstm.bias_ih_l0", "batch.weight", "layer.weight", "group.weight", "scalar"} <= dense
    assert all("bias" in name or name.split(".")[0] in ("batch", "layer", "group", "scalar") for name in dense)


def test_without_a_module_the_shape_decides() -> None:
    shapes: list[tuple[int, ...]] = [(), (8,), (8, 4), (8, 4, 3), (8, 4, 3, 3)]
    assert [Policy(conv=1, linear=2).length("w", torch.Size(shape)) for shape in shapes] == [None, None, 2, 1, 1]


def test_names_override_kinds_and_the_first_match_counts() -> None:
    names: dict[str, Any] = {"fc?.*": "dense", "*.bias": 30, "conv[12].weight": 7, "conv1.weight": 9}
    policy = Policy(linear=60, names=list(names.items()))
    shape = torch.Size((8, 8))
    assert policy.length("fc1.weight", shape) is None
    assert policy.length("fc1.bias", torch.Size((8,))) is None
    assert policy.length("fc10.weight", shape) == 60  # `?` is one sign
    assert policy.length("norm.bias", torch.Size((8,))) == 30  # dense otherwise
    assert policy.length("conv1.weight", torch.Size((8, 8, 3, 3))) == 7
    assert policy.length("conv3.weight", torch.Size((8, 8, 3, 3))) == 50
    assert policy.length("FC1.weight", shape) == 60  # the case counts


def test_names_as_a_mapping_are_refused() -> None:
    """Their patterns would be taken for pairs."""
    names: Any = {"fc.*": 30}
    with pytest.raises(ValueError, match=r"names is a sequence of \(pattern, length\) pairs: give tuple\(names.items"):
        Policy(names=names)


def test_patterns_that_match_nothing_are_refused_with_the_modules_names() -> None:
    module = nn.Sequential(nn.Linear(3, 3))
    policy = Policy(names=[("0.*", 30), ("fc.*", 40), ("1.weight", "dense")])
    with pytest.raises(ValueError, match=r"no parameter matches fc\.\*, 1\.weight; the module has 0\.weight, 0\.bias"):
        policy.bind(module)
    lengths(Policy(names=[("0.*", 30), ("*.weight", 40)]), module)  # matched by an earlier pattern too


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"conv": 0}, 'conv is 0; give a number of elements, or "dense"'),
        ({"linear": -3}, "linear is -3;"),
        ({"recurrent": 2.5}, "recurrent is 2.5;"),
        ({"embedding": True}, "embedding is True;"),
        ({"conv": "sparse"}, "conv is 'sparse';"),
        ({"names": [("fc.*", 0)]}, r"names: 'fc\.\*' is 0;"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Policy(**settings)
