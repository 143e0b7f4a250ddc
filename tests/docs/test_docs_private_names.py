"""The list of private names of torch, in docs/decisions, has those that the worker uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/decisions/21-private-names-of-torch.md").read_text(encoding="utf-8")


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
    own -= set(dir(dist.ProcessGroupGloo._Options))
    listed = private(*re.findall(r"^\| (.*?) \|", PAGE, re.MULTILINE))
    assert listed == private(*(name for node in nodes for name in used(node))) - own
