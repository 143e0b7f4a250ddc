"""Environment variables: values, and another one. Those of other kinds are tested where they are read."""

from __future__ import annotations

import pytest

from p4reduce_runtime.environment import P4REDUCE_INSECURE, P4REDUCE_SWITCH_THREADS
from p4reduce_runtime.settings import ConfigError


@pytest.mark.parametrize(("value", "insecure"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_a_variable_that_is_empty_is_not_set(value: str | None, insecure: bool) -> None:
    assert P4REDUCE_INSECURE.read({} if value is None else {"P4REDUCE_INSECURE": value}) is insecure


def test_another_value_is_an_error_that_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="P4REDUCE_INSECURE is 'yes'; it has to be 0 or 1"):
        P4REDUCE_INSECURE.read({"P4REDUCE_INSECURE": "yes"})
    with pytest.raises(ConfigError, match="P4REDUCE_SWITCH_THREADS is 'x'; it has to be a whole number"):
        P4REDUCE_SWITCH_THREADS.read({"P4REDUCE_SWITCH_THREADS": "x"})
