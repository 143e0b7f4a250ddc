"""A fixture for modules whose tests train: import it, and it is used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Torch's own threads wait in a loop for each other: on a busy machine to convert 65,536 numbers took 20 ms."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
