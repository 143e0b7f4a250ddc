"""How torch finds the backend, at `import torch` or when the name is first used."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest
import torch.distributed as dist


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize(("group", "reads_late"), [("torch.backends", False), ("torch.distributed.backends", True)])
def test_one_group_of_entry_points_registers_the_backend(
    group: str, reads_late: bool, newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`newer`: on a torch that reads the newer group."""
    registered: list[str] = []

    class Backend:
        @staticmethod
        def register_backend(name: str, *_: object, **__: object) -> None:
            registered.append(name)

    if newer:
        Backend._ensure_backend_registered = None  # type: ignore[attr-defined]
    monkeypatch.setattr(dist, "Backend", Backend)
    (found,) = (each for each in entry_points(group=group) if each.name == "p4reduce")
    found.load()()
    assert registered == (["p4reduce"] if reads_late or not newer else [])
