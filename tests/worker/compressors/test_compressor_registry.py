"""Compressors by name; that of docs/compressors.md, and the test of it, run as they stand there."""

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
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


DOCUMENT = Path(__file__).parents[3] / "docs" / "compressors.md"
HOWTO = "Write a compressor"


def section(heading: str) -> str:
    return DOCUMENT.read_text(encoding="utf-8").partition(f"\n## {heading}")[2].partition("\n## ")[0]


def blocks(heading: str, language: str) -> list[str]:
    """The code blocks of one section."""
    return re.findall(rf"^```{language}\n(.*?)^```$", section(heading), re.DOTALL | re.MULTILINE)


@pytest.fixture
def howto(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the example and its test define."""
    monkeypatch.setattr(interface, "_classes", dict(interface._classes))  # what it registers goes again
    module = types.ModuleType("howto")
    monkeypatch.setitem(sys.modules, "howto", module)
    for text in blocks(HOWTO, "python"):
        exec(compile(text, str(DOCUMENT), "exec"), vars(module))
    yield vars(module)


@pytest.mark.parametrize("world_size", [2, 3])
def test_the_test_in_the_document_passes(howto: dict[str, Any], world_size: int) -> None:
    howto["test_nothing_is_lost"](world_size)


def test_the_table_names_every_compressor_with_its_forms() -> None:
    rows = [[cell.strip(" `") for cell in line.split("|")] for line in section("The compressors").splitlines()]
    table = {row[1]: (row[2], row[4]) for row in rows if len(row) == 8}
    for name, cls in interface._classes.items():
        forms = "" if name == "none" else ", ".join(cls.forms)
        assert table[name] == (cls.__name__, forms)
