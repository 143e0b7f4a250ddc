"""The worker's files import downwards only, and protocol/ knows no sockets, clocks or threads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import p4reduce

PACKAGE = Path(p4reduce.__file__).parent

LAYERS = [
    ["p4reduce.pytorch.ddp"],
    ["p4reduce.pytorch.bucket_thread", "p4reduce.compressors", "p4reduce.join", "p4reduce.testing"],
    ["p4reduce.communicator", "p4reduce.heartbeat"],
    ["p4reduce.collectives"],
    ["p4reduce.session"],
    ["p4reduce.codecs", "p4reduce.transport", "p4reduce.turns"],
    ["p4reduce.protocol"],
    ["p4reduce.stats", "p4reduce.errors"],
]
"""From the top down: a module may import those of lower layers, and its own package."""


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield str(node.module)


def layer_of(module: str) -> tuple[int, str]:
    """(layer, its member) of a module of the package."""
    for depth, members in enumerate(LAYERS):
        for member in members:
            if module == member or module.startswith(member + "."):
                return depth, member
    raise AssertionError(f"{module} has no place in LAYERS")


FILES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).as_posix() not in ("__init__.py", "pytorch/__init__.py")
)


@pytest.mark.parametrize("name", FILES)
def test_no_import_goes_up(name: str) -> None:
    module = "p4reduce." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    depth, member = layer_of(module)
    for imported in imports(PACKAGE / name):
        if imported.startswith("p4reduce."):
            below, other = layer_of(imported)
            assert below > depth or other == member, f"{module} imports {imported}"


def test_the_protocol_does_no_io() -> None:
    allowed = {"__future__", "collections", "dataclasses", "enum", "heapq", "numpy", "typing", "zlib"}
    for path in sorted((PACKAGE / "protocol").glob("*.py")):
        roots = {name.partition(".")[0] for name in imports(path)}
        assert roots <= allowed | {"p4reduce", "p4reduce_contracts"}, path.name
