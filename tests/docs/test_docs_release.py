"""The version stands in pyproject.toml alone, and the changelog begins with it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_the_changelog_begins_with_the_version_or_a_development_version_with_what_is_unreleased() -> None:
    newest, *_ = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest == ("Unreleased" if ".dev" in VERSION else VERSION)


def test_no_module_repeats_the_version() -> None:
    """Programs read it from the metadata of the installed package."""
    sources = [ROOT / name for name in ("pyproject.toml", "mkdocs.yml", "layers.toml", "Makefile")]
    for folder in ("contracts", "controller", "examples", "lab", "mininet", "p4src", "runtime", "softswitch", "worker"):
        sources += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".toml", ".yml")]
    quoted = f'"{VERSION}"'
    assert [path.name for path in sources if quoted in path.read_text(encoding="utf-8")] == ["pyproject.toml"]
