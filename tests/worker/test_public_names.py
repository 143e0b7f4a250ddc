"""The names that users import."""

from __future__ import annotations

import pytest

import p4reduce


def test_the_public_names() -> None:
    assert p4reduce.__all__ == [
        "AdaComp",
        "CollectiveError",
        "Communicator",
        "DDPState",
        "NoCompression",
        "OmniReduce",
        "Quantize",
        "P4ReduceError",
        "ScaleCom",
        "__version__",
        "ddp_hook",
        "join",
        "recommend",
    ]
    for name in p4reduce.__all__:
        assert getattr(p4reduce, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'NoSuchName'"):
        _ = p4reduce.NoSuchName
