"""How torch finds the backend, at `import torch` or when the name is first used."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import pytest
import torch
import torch.distributed as dist
from torch.torch_version import TorchVersion


def imported() -> set[str]:
    """Return which modules of ours are imported."""
    return {name for name in sys.modules if name.partition(".")[0] == "p4reduce"}


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize(("group", "reads_late"), [("torch.backends", False), ("torch.distributed.backends", True)])
def test_one_group_of_entry_points_registers_the_backend(
    group: str, reads_late: bool, newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`newer`: on a torch that reads the newer group, which imports only the named module for the other one."""
    registered: list[str] = []

    class Backend:
        @staticmethod
        def register_backend(name: str, *_: object, **__: object) -> None:
            registered.append(name)

    monkeypatch.setattr(torch, "__version__", TorchVersion("2.15.0+cpu" if newer else "2.14.1"))
    monkeypatch.setattr(dist, "Backend", Backend)
    for name in imported():
        monkeypatch.delitem(sys.modules, name)
    (found,) = (each for each in entry_points(group=group) if each.name == "p4reduce")
    found.load()()
    assert registered == (["p4reduce"] if reads_late or not newer else [])
    if not registered:
        assert imported() == {"p4reduce", "p4reduce.pytorch", "p4reduce.pytorch.autoload"}
