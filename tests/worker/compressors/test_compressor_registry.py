"""Compressors by name."""

import subprocess
import sys
from typing import Any

import pytest
import torch

from p4reduce import compressors
from p4reduce.compressors import Policy, by_name, register, registry
from rigs.limits import LIMIT_S


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("none", compressors.NoCompression),
        ("adacomp", compressors.AdaComp),
        ("scalecom", compressors.ScaleCom),
        ("omnireduce", compressors.OmniReduce),
        ("quantize", compressors.Quantize),
    ],
)
def test_every_compressor_by_its_name(name: str, cls: type[compressors.Compressor]) -> None:
    made = by_name(name)
    assert type(made) is cls and made.name == name


def test_options_and_policy_are_the_classes_own() -> None:
    made = by_name("scalecom", b=1, per_chunk=2, policy=Policy(conv=7))
    assert isinstance(made, compressors.ScaleCom)
    assert (made.b, made.per_chunk, made.policy.conv) == (1, 2, 7)


def test_default_policies_are_not_shared() -> None:
    one, other = by_name("adacomp"), by_name("adacomp")
    one.bind(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    assert one.policy is not other.policy and not other.policy._kinds


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("adacom", {}, ["'adacom'", "adacomp", "omnireduce", "none"]),
        ("adacomp", {"levels": 0}, ["levels is 0"]),
        ("adacomp", {"form": "ring"}, ["sum, gather, shared", "'ring'"]),
        ("adacomp", {"policy": 50}, ["policy is 50", "Policy"]),
        ("adacomp", {"value_bits": 12}, ["value_bits is 12", "8, 16 or 32"]),
        ("scalecom", {"b": float("nan")}, ["b is nan"]),
        ("quantize", {"bits": 4}, ["bits is 4", "16 or 8"]),
    ],
)
def test_errors_name_the_wrong_option(name: str, options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        by_name(name, **options)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_class_of_the_user_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))

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


@pytest.mark.processes
def test_the_package_is_an_attribute_after_importing_p4reduce_alone() -> None:
    code = "import p4reduce; print(p4reduce.compressors.AdaComp.name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.stdout, done.stderr) == ("adacomp\n", "")
