"""Medians, ratios and taking turns."""

from __future__ import annotations

import pytest

from p4reduce_lab.bench.numbers import in_turn, median, ratio


def test_a_ratio_is_of_medians() -> None:
    assert ratio([8.0, 1.0, 100.0], [2.0, 4.0, 300.0]) == 2.0
    assert median([1.0, 2.0]) == 1.5


@pytest.mark.parametrize(("above", "below"), [([], [1.0]), ([1.0], []), ([1.0], [0.0, 0.0])])
def test_a_ratio_of_nothing_is_refused(above: list[float], below: list[float]) -> None:
    with pytest.raises(ValueError, match="nothing was measured|median of 0"):
        ratio(above, below)


def test_peers_are_measured_in_turns() -> None:
    asked: list[str] = []

    def measure(name: str) -> float:
        asked.append(name)
        return float(len(asked))

    found = in_turn({"a": lambda: measure("a"), "b": lambda: measure("b")}, 3)
    assert asked == ["a", "b"] * 3
    assert found == {"a": [1.0, 3.0, 5.0], "b": [2.0, 4.0, 6.0]}


def test_no_turn_is_begun_after_the_limit_once_there_are_enough() -> None:
    assert in_turn({"a": lambda: 1.0}, 9, limit_s=-1.0, at_least=2) == {"a": [1.0, 1.0]}
