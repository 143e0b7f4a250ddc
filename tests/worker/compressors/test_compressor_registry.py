"""Compressors by name."""

from typing import Any

import pytest
import torch

from p4reduce import compressors
from p4reduce.compressors import Policy, by_name, interface, register

SETTINGS = [
    *[("adacomp", setting) for setting in ("value_bits", "warmup_steps", "momentum")],
    *[("omnireduce", setting) for setting in ("ratio", "seed", "value_bits", "warmup_steps")],
    *[("scalecom", setting) for setting in ("b", "value_bits", "warmup_steps")],
    *[("quantize", setting) for setting in ("bits", "warmup_steps")],
]


def test_options_and_policy_are_the_classes_own() -> None:
    made = by_name("scalecom", b=1, value_bits=8, policy=Policy(conv=7))
    assert isinstance(made, compressors.ScaleCom)
    assert (made.b, made.value_bits, made.policy.conv) == (1, 8, 7)


def test_default_policies_are_not_shared() -> None:
    one, other = by_name("adacomp"), by_name("adacomp")
    one.bind(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    assert one.policy is not other.policy and not other.policy._kinds


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("adacom", {}, ["'adacom'", "adacomp", "omnireduce", "none"]),
        ("adacomp", {"warmup_steps": -1}, ["warmup_steps is -1"]),
        *[
            ("adacomp", {"momentum": m}, ["momentum is", "give 0 or more, less than 1"])
            for m in (-0.1, 1.0, float("nan"))
        ],
        ("adacomp", {"form": "ring"}, ["sum, gather, shared", "'ring'"]),
        *[
            (name, {"policy": wrong}, [f"policy is {wrong!r}", "Policy"])
            for name in ("adacomp", "omnireduce")
            for wrong in (50, "")
        ],
        ("adacomp", {"value_bits": 12}, ["value_bits is 12", "8, 16 or 32"]),
        *[("scalecom", {"b": b}, [f"b is {b}; give more than 0, at most 1"]) for b in (0.0, -0.1, 1.5, float("nan"))],
        ("scalecom", {"value_bits": 4}, ["value_bits is 4"]),
        *[("omnireduce", {"ratio": ratio}, ["more than 0 and at most 1"]) for ratio in (0.0, -0.5, 1.01, float("nan"))],
        *[
            ("omnireduce", {"select": "threshold", "threshold": least}, ["give a norm above 0"])
            for least in (None, 0.0, -1.0, float("nan"), float("inf"), "x")
        ],
        ("omnireduce", {"select": "all"}, ["select is 'all'; give top-k, top-k-ratio, random-k, threshold"]),
        ("omnireduce", {"value_bits": 5}, ["value_bits is 5"]),
        *[("quantize", {"bits": bits}, [f"bits is {bits!r}; give 16 or 8"]) for bits in (4, 8.0, "eight")],
        *[
            (name, {setting: wrong}, [f"{setting} is {wrong!r}; give"])
            for name, setting in SETTINGS
            for wrong in (8.5, "x", "", True, 10**20)
        ],
    ],
)
def test_errors_name_the_wrong_option(name: str, options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        by_name(name, **options)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_class_of_the_user_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "_classes", dict(interface._classes))

    @register("own")
    class Own(compressors.ScaleCom):
        pass

    assert type(by_name("own", b=0.5)) is Own
    assert register("own")(Own) is Own and Own.name == "own" and compressors.ScaleCom.name == "scalecom"
    with pytest.raises(ValueError, match="two compressors are called 'own': Own and Other"):

        @register("own")
        class Other(compressors.AdaComp):
            pass

    assert compressors.AdaComp.name == "adacomp"
    with pytest.raises(ValueError, match="give the compressor a name: @register"):
        register(Own)  # type: ignore[arg-type]
