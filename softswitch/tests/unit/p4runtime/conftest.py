"""A served switch and a primary controller that speaks raw P4Runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rigs.p4rt import Raw, Served, config, served


@pytest.fixture
def switch() -> Iterator[Served]:
    with served() as one:
        yield one


@pytest.fixture
def raw(switch: Served) -> Iterator[Raw]:
    """Primary, with the test program committed."""
    with Raw(switch.address) as one:
        assert one.arbitrate().status.code == 0
        one.set_config(config=config())
        yield one
