"""Pages that repeat what the sources say: frameworks.md, bmv2.md, protocol.md, private names, and the changelog.

And the site that is made of all pages.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
import textwrap
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist
from markdown_it import MarkdownIt
from markdown_it.token import Token

from conformance import recording
from p4reduce.errors import Reason
from p4reduce.protocol.refusal import code_of
from p4reduce.testing.local_group import EPOCH, JOB, LocalGroup
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.calls import CodecId, Kind
from p4reduce_contracts.wire.geometry import SMALL
from p4reduce_runtime.environment import VARIABLES, Variable
from rigs.script_runs import run_command

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = (ROOT / "docs/frameworks.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"`(tests/worker/frameworks/\w+\.py)`:\n\n```python\n(.*?)```", FRAMEWORKS, re.DOTALL)


@pytest.mark.parametrize(("script", "block"), SHOWN, ids=[script for script, _ in SHOWN])
def test_quoted_lines_are_in_the_script(script: str, block: str) -> None:
    lines = [line for line in (ROOT / script).read_text(encoding="utf-8").splitlines() if line]
    shown = [line for line in block.splitlines() if line]  # methods have one empty line between them, functions two
    runs = ("\n".join(lines[at : at + len(shown)]) for at in range(len(lines)))
    assert any(textwrap.dedent(run).splitlines() == shown for run in runs)


def test_every_block_names_its_script() -> None:
    assert len(SHOWN) == FRAMEWORKS.count("```python")
    assert "examples/slurm.sbatch" in FRAMEWORKS and (ROOT / "examples/slurm.sbatch").exists()


def test_the_page_and_the_recordings_name_the_same_version() -> None:
    page = (ROOT / "docs/bmv2.md").read_text()
    row = re.search(r"^- BMv2 (\d+(?:\.\d+)+),", page, re.MULTILINE)
    assert row is not None, "the list has a line for BMv2 that begins with its version"
    assert {recording.load(name).target for name in recording.names()} == {f"simple_switch_grpc {row[1]}"}


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


def private(*names: str) -> set[str]:
    return {word for name in names for word in re.findall(r"(?<![\w-])_[A-Za-z]\w*", name)}


def defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def used(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.ImportFrom):
        yield from [node.module or "", *(each.name for each in node.names)]
    elif isinstance(node, ast.Constant) and str(node.value).isidentifier():
        yield str(node.value)  # of getattr and vars


def test_the_list_has_the_private_names_that_the_worker_uses() -> None:
    nodes = [
        node
        for path in (ROOT / "worker/p4reduce").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    own = {name for node in nodes for name in defined(node)} - set(dir(dist.ProcessGroup))
    own -= {*dir(dist.ProcessGroupGloo), *dir(dist.ProcessGroupGloo._Options)}
    page = (ROOT / "docs/decisions/21-private-names-of-torch.md").read_text(encoding="utf-8")
    listed = private(*re.findall(r"^\| (.*?) \|", page, re.MULTILINE))
    assert listed == private(*(name for node in nodes for name in used(node))) - own


PROTOCOL = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
PARTS = re.compile(r"\b[0-9a-f]{32,}\b")
SECRETS = (0x1111111111111111, 0x2222222222222222)


class Recorder(ReferenceSwitch):
    """Notes what comes in and goes out, as (of which rank, whether it goes out, frame)."""

    def __init__(self) -> None:
        super().__init__(SMALL, 1)
        self.add_job(JOB, EPOCH, 2, 0, 1, SECRETS)
        self.frames: list[tuple[int, bool, str]] = []

    def process(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        answers = list(super().process(rank, payload))
        self.frames += [(rank, False, payload.hex()), *((to, True, answer.hex()) for to, answer in answers)]
        return answers


def test_the_frames_of_the_example() -> None:
    switch, numbers = Recorder(), [np.array([1, -0.5], np.float32), np.array([2, 0], np.float32)]
    leases = [
        Lease(
            JOB,
            "example",
            EPOCH,
            rank,
            2,
            1,
            SMALL.columns,
            SMALL.block_words,
            switches=(LeasedSwitch(secret=secret),),
            first_round=7,
        )
        for rank, secret in enumerate(SECRETS)
    ]
    with LocalGroup(2, switch=switch, leases=leases) as group:
        group.run(lambda comm: comm.all_reduce(numbers[comm.rank]))
        sent = sorted(switch.frames[:8], key=lambda frame: (frame[2][16:24], frame[1], frame[0]))
    shown = "".join(PARTS.findall(PROTOCOL.partition("### Example")[2].partition("### Refusal")[0]))
    assert shown == "".join(frame for rank, out, frame in sent if (rank, out) != (1, True))  # RESULTs are alike
    assert f"{zlib.crc32(b'float32[2]||1'):08x}" in shown


def test_the_numbers_of_a_call() -> None:
    (kinds,) = re.findall(
        r"^Kinds are (.*?); codecs (.*?);\s+reasons (.*?)\. The text", PROTOCOL, re.MULTILINE | re.DOTALL
    )
    listed = [[int(number) for number in re.findall(r"(?:^|, )(\d+) ", part.replace("\n", " "))] for part in kinds]
    assert listed == [sorted(Kind), sorted(CodecId), [code_of(reason) for reason in Reason]]


OUTSIDE = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("*/**/*.md"))
    if path.relative_to(ROOT).parts[0] not in ("docs", "out") and not path.relative_to(ROOT).parts[0].startswith(".")
)


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: p4reduce[docs]")
@pytest.mark.processes
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)
    run_command(*command, environment=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, folder=ROOT)
    assert "p4reduce.DDPState" in (tmp_path / "api/p4reduce.html").read_text(encoding="utf-8")
    page = (tmp_path / "configuration.html").read_text(encoding="utf-8")
    assert re.findall(r"<li><code>(P4REDUCE_\w+)</code>", page) == [variable.name for variable in VARIABLES]


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


def test_every_environment_variable_is_declared_and_read_by_its_declaration() -> None:
    folders = ("contracts", "controller", "lab", "mininet", "runtime", "softswitch/p4reduce_switch", "worker")
    texts = [path.read_text(encoding="utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py")]
    declared = {variable.name for variable in VARIABLES}
    assert {name for text in texts for name in re.findall(r'"(P4REDUCE_[A-Z_]*[A-Z])"', text)} == {
        *declared,
        "P4REDUCE_MARK",  # which programs set for the processes that they start
    }
    assert [text for text in texts if re.search(r'environ\w*(\.get\(|\[)"P4REDUCE_\w+"(?!\] = )', text)] == []
    imports = (node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom))
    assert {name for node in imports if node.module == Variable.__module__ for name in used(node)} >= declared
