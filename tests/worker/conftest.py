"""What several of the worker's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(params=["compiled", "python"], scope="module")
def each_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the module's tests over the compiled engine, where the machine has one, and over the one in Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("P4REDUCE_KERNELS", "off" if request.param == "python" else "on")
        yield
