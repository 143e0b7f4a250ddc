"""The names that users import."""

from __future__ import annotations

import pytest

import p4reduce


def test_each_public_name_can_be_imported() -> None:
    assert all(getattr(p4reduce, name) is not None for name in p4reduce.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'NoSuchName'"):
        _ = p4reduce.NoSuchName
