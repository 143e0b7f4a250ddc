"""How large the repository is: it stays small enough to be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_IN_GIT = {".git", ".venv", ".pytest_cache", "__pycache__", "out", "dist"}
"""Folders that git ignores; other hidden folders have no Python and no Markdown."""

LAB = {"docs", "examples", "lab", "mininet", "p4src"}
LIMITS = {
    "product": 31_500,
    "lab": 9_600,
    "tests of both": 38_700,
    "switch": 17_500,
    "tests of the switch": 11_700,
    "Markdown": 32_700,
}
"""Lines of Python without generated files, and words; at most 1 % more than there is. CONTRIBUTING says how they grow.

The product is what users run: worker, controller, runtime, contracts.
"""


def files(folder: Path) -> Iterator[Path]:
    """All files below that git does not ignore."""
    for path in folder.iterdir():
        if not path.is_dir():
            yield path
        elif path.name not in NOT_IN_GIT and not path.is_symlink():
            yield from files(path)


def sizes() -> dict[str, int]:
    found = dict.fromkeys(LIMITS, 0)
    for path in files(ROOT):
        if path.suffix == ".md":
            found["Markdown"] += len(path.read_text(encoding="utf-8").split())
        elif path.suffix == ".py" and not path.stem.endswith(("_pb2", "_pb2_grpc")):
            folders = path.relative_to(ROOT).parts
            switch, is_test = folders[0] == "softswitch", "tests" in folders or path.name == "conftest.py"
            if is_test:
                kind = "tests of the switch" if switch else "tests of both"
            else:
                kind = "switch" if switch else "lab" if folders[0] in LAB else "product"
            found[kind] += path.read_text(encoding="utf-8").count("\n")
    return found


def test_the_repository_is_within_its_limits(capsys: pytest.CaptureFixture[str]) -> None:
    found = sizes()
    with capsys.disabled():
        print("\n" + "\n".join(f"{kind}: {found[kind]:,} of at most {limit:,}" for kind, limit in LIMITS.items()))
    assert all(found[kind] > 0 for kind in LIMITS)
    assert {kind: size for kind, size in found.items() if size > LIMITS[kind]} == {}
