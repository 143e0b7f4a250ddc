"""Compressors by name and from TOML files: what is made, and what is refused with which words."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from p4reduce import compressors
from p4reduce.compressors import Policy, by_name, from_toml, register, registry

CLASSES: dict[str, tuple[type[compressors.Compressor], dict[str, Any]]] = {
    "none": (compressors.NoCompression, {}),
    "adacomp": (compressors.AdaComp, {}),
    "shared-adacomp": (compressors.SharedAdaComp, {}),
    "scalecom": (compressors.ScaleCom, {}),
    "block-adacomp": (compressors.BlockAdaComp, {}),
    "block-top-k": (compressors.BlockTopK, {}),
    "block-top-k-ratio": (compressors.BlockTopKRatio, {}),
    "block-threshold": (compressors.BlockThreshold, {"threshold": 0.5}),
    "block-random-k": (compressors.BlockRandomK, {}),
}
CONV, LINEAR, BIAS = torch.Size((8, 4, 3, 3)), torch.Size((10, 20)), torch.Size((10,))


def written(folder: Path, text: str) -> Path:
    path = folder / "compressor.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> str:
    path = written(folder, text)
    with pytest.raises(ValueError) as caught:
        from_toml(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


@pytest.mark.parametrize("name", CLASSES)
def test_every_compressor_by_its_name(name: str) -> None:
    cls, options = CLASSES[name]
    made = by_name(name, **options)
    assert type(made) is cls and made.name == name
    assert made.policy == cls.default_policy()


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
        ("adacom", {}, ["'adacom'", "adacomp", "block-random-k", "none"]),
        ("adacomp", {"level": 2}, ["adacomp: unknown option level", "levels", "form"]),
        ("adacomp", {"name": "x", "cls": 1}, ["name, cls", "known are policy"]),
        ("none", {"form": "sum"}, ["none: unknown option form", "known are none"]),
        ("adacomp", {"levels": "2"}, ["adacomp: levels is '2'", "whole number"]),
        ("adacomp", {"levels": True}, ["levels is True", "whole number"]),
        ("adacomp", {"levels": 0}, ["adacomp: levels is 0"]),
        ("adacomp", {"allow_shared": 1}, ["allow_shared is 1", "true or false"]),
        ("adacomp", {"form": 3}, ["form is 3", "a text"]),
        ("adacomp", {"form": "ring"}, ["auto, sum, gather, shared", "'ring'"]),
        ("adacomp", {"policy": 50}, ["policy is 50", "Policy"]),
        ("adacomp", {"value_bits": 12}, ["value_bits is 12", "8, 16 or 32"]),
        ("scalecom", {"b": "small"}, ["scalecom: b is 'small'", "a number"]),
        ("scalecom", {"b": float("nan")}, ["b is nan"]),
        ("block-top-k", {"ratio": None}, ["ratio is None", "a number"]),
        ("block-threshold", {}, ["block-threshold: give threshold"]),
    ],
)
def test_errors_name_the_wrong_option(name: str, options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        by_name(name, **options)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_whole_file(tmp_path: Path) -> None:
    made = from_toml(
        written(
            tmp_path,
            """
            compressor = "adacomp"
            [options]
            form = "gather"
            warmup_steps = 3
            [policy]
            conv = 40
            linear = 600
            first_layer = "dense"
            [policy.names]
            "fc2.*" = "dense"
            "conv?.weight" = 100
            "conv2.*" = 7
            "norm.bias" = 10
            """,
        )
    )
    assert isinstance(made, compressors.AdaComp)
    assert (made.form, made.warmup_steps, made.policy.first_layer) == ("gather", 3, "dense")
    length = made.policy.length
    assert [length("a.weight", CONV), length("a.weight", LINEAR), length("a.bias", BIAS)] == [40, 600, None]
    assert length("conv2.weight", CONV) == 100  # the first pattern that matches
    assert length("fc2.weight", LINEAR) is None
    assert length("norm.bias", BIAS) == 10


@pytest.mark.parametrize(("name", "others"), [("adacomp", 500), ("scalecom", 100), ("block-top-k", 256)])
def test_omitted_policy_keys_have_the_compressors_default(tmp_path: Path, name: str, others: int) -> None:
    made = from_toml(written(tmp_path, f'compressor = "{name}"\n[policy]\nconv = 64\n'))
    assert made.policy.length("a.weight", CONV) == 64
    assert made.policy.length("a.weight", LINEAR) == others
    assert from_toml(written(tmp_path, f'compressor = "{name}"')).policy == type(made).default_policy()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["compressor = ", "adacomp"]),
        ("compressor = 3", ["compressor: Expected `str`, got `int`"]),
        ('compressor = "zip"', ["'zip'", "scalecom"]),
        ('compressor = "none"\nform = "sum"', ["unknown field `form`"]),
        ('compressor = "adacomp"\noptions = 3', ["options: Expected `object`, got `int`"]),
        ('compressor = "adacomp"\n[options]\nlevel = 3', ["unknown option level", "levels"]),
        ('compressor = "adacomp"\n[options]\npolicy = 3', ["[policy]"]),
        ('compressor = "adacomp"\n[policy]\nconvolution = 3', ["unknown convolution", "conv, embedding"]),
        ('compressor = "adacomp"\n[policy]\nconv = 0', ["conv is 0"]),
        ('compressor = "adacomp"\n[policy]\nconv = "thick"', ["conv is 'thick'", '"dense"']),
        ('compressor = "adacomp"\n[policy]\nlinear = 20000', ["20000", "16384"]),
        ('compressor = "adacomp"\n[policy]\nfirst_layer = 3', ["first_layer is 3", '"compressed"']),
        ('compressor = "adacomp"\n[policy]\nnames = 3', ["names is a table"]),
        ('compressor = "adacomp"\n[policy.names]\nfc2.weight = 3', ["in quotes", '"fc2.*"']),
        ('compressor = "adacomp"\n[policy.names]\n"fc2.*" = 0.5', ["'fc2.*' is 0.5"]),
        ('compressor = "none"\n[policy]\nconv = 3', ["none takes no policy"]),
        ("compressor = adacomp", ["line 1"]),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, words: list[str]) -> None:
    message = refused(tmp_path, text)
    assert all(word in message for word in words), message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone\.toml: .*No such file"):
        from_toml(tmp_path / "gone.toml")
    (tmp_path / "latin.toml").write_bytes(b'compressor = "\xe4"')
    with pytest.raises(ValueError, match=r"latin\.toml: .*utf-8"):
        from_toml(str(tmp_path / "latin.toml"))


def test_a_class_of_the_user_is_registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "_classes", registry.registered())

    @register("own")
    class Own(compressors.ScaleCom):
        pass

    assert type(by_name("own", b=0.5)) is Own
    assert type(from_toml(written(tmp_path, 'compressor = "own"'))) is Own
    assert register("own")(Own) is Own and Own.name == "own" and compressors.ScaleCom.name == "scalecom"
    with pytest.raises(ValueError, match="two compressors are called 'own': Own and Other"):

        @register("own")
        class Other(compressors.AdaComp):
            pass

    assert compressors.AdaComp.name == "adacomp"
    with pytest.raises(ValueError, match="give the compressor a name: @register"):
        register(Own)  # type: ignore[arg-type]


def bring(folder: Path, name: str, text: str) -> None:
    """What installing a package leaves whose entry point names a compressor, and its module."""
    module = f"brought_{name}"
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(f"[p4reduce.compressors]\n{name} = {module}\n", encoding="utf-8")
    (folder / f"{module}.py").write_text(text, encoding="utf-8")


def test_an_installed_package_brings_a_compressor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its module is imported when the name is used, and not before."""
    monkeypatch.setattr(registry, "_classes", registry.registered())
    monkeypatch.syspath_prepend(str(tmp_path))
    text = """
import p4reduce
from p4reduce.compressors import register

@register("{}")
class Brought(p4reduce.ScaleCom):
    pass
"""
    bring(tmp_path, "ours", text.format("ours"))
    bring(tmp_path, "mute", text.format("another"))
    bring(tmp_path, "broken", "import no_such_module")
    with pytest.raises(ValueError, match="unknown compressor 'our'; known are .*adacomp.*ours"):
        by_name("our")
    assert "brought_ours" not in sys.modules
    for made in (by_name("ours"), from_toml(written(tmp_path, 'compressor = "ours"'))):
        assert (type(made).__module__, made.name) == ("brought_ours", "ours")
    with pytest.raises(ValueError, match="brought_mute brings 'mute', but nothing in brought_mute is @register"):
        by_name("mute")
    with pytest.raises(ValueError, match="brought_broken brings 'broken', but it cannot be imported: .*no_such_module"):
        by_name("broken")


@pytest.mark.processes
def test_the_package_is_an_attribute_after_importing_p4reduce_alone() -> None:
    code = "import p4reduce; print(p4reduce.compressors.from_toml.__name__, p4reduce.compressors.AdaComp.name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("from_toml adacomp\n", "")
