"""The documentation builds without a warning, lists every environment variable, and no link leads nowhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from rigs.limits import LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("*/**/*.md"))
    if path.relative_to(ROOT).parts[0] not in ("docs", "out") and not path.relative_to(ROOT).parts[0].startswith(".")
)


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: p4reduce[docs]")
@pytest.mark.processes
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "p4reduce.DDPState" in (tmp_path / "api/p4reduce.html").read_text(encoding="utf-8")


def links(page: Path) -> Iterator[str]:
    """Every link and image of a page outside code."""
    tokens = list(MarkdownIt("gfm-like", {"linkify": False}).parse(page.read_text(encoding="utf-8")))
    for token in tokens:
        for inner in token.children or ():
            target = inner.attrs.get("href") or inner.attrs.get("src")
            if target is not None:
                yield str(target)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    tokens: list[Token] = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    headings = (tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open")
    return {"".join(c for c in text.lower() if c.isalnum() or c in " -_").replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_pages_outside_the_site(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT) and target.exists(), f"{link}: there is no {path}"
        assert not anchor or anchor in anchors(target), f"{link}: no heading of that page"


def test_every_environment_variable_is_listed() -> None:
    folders = ("contracts", "controller", "lab", "mininet", "runtime", "softswitch", "worker")
    text = "".join(file.read_text(encoding="utf-8") for folder in folders for file in (ROOT / folder).rglob("*.py"))
    read = set(re.findall(r'"(P4REDUCE_[A-Z_]*[A-Z])"', text))
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8").partition("\n## Environment variables\n")[2]
    for_children = ["P4REDUCE_MARK", "P4REDUCE_TESTBED"]  # which programs set for the processes that they start
    assert sorted([*re.findall(r"`(P4REDUCE_\w+)`", page), *for_children]) == sorted(read)
