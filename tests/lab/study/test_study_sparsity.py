"""Natural zeros: what a training over a switch counts of them, and the words that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from p4reduce.compressors import Compressor
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.testing.local_group import LocalGroup
from p4reduce_lab.study import data, sparsity
from p4reduce_lab.study.grid import TASKS, Run
from p4reduce_lab.study.results import is_current

VOCABULARY = 300


class OverReferenceSwitch:
    """In the place of OnSwitch: the same calls, over a switch that is a Python object."""

    def __init__(self, controller: str, job: str, world_size: int) -> None:
        self._group = LocalGroup(world_size)

    def __enter__(self) -> OverReferenceSwitch:
        self._group.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._group.__exit__(*error)

    def exchange(
        self, compressors: Sequence[Compressor], gradients: Sequence[dict[str, torch.Tensor]]
    ) -> tuple[Any, Any, int]:
        both = self._group.run(lambda comm: all_reduce_compressed(comm, compressors[comm.rank], gradients[comm.rank]))
        return [outcome for outcome, _ in both], [report for _, report in both], 0


def test_untouched_rows_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    text = torch.randint(0, 20, (500,), generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(data, "words", lambda cache: data.Words(text, [str(i) for i in range(VOCABULARY)]))
    monkeypatch.setattr(sparsity, "OnSwitch", OverReferenceSwitch)
    monkeypatch.setitem(TASKS, "plays-words-16", replace(TASKS["plays-words-16"], steps=2, batch=4))
    seen: list[tuple[int, int]] = []
    run = Run("plays-words-16", 2, "sgd", "dense", 1)
    found = sparsity.train(run, Path("nowhere"), "", lambda step, steps: seen.append((step, steps)))
    assert seen == [(0, 2), (1, 2)]
    assert found["id"] == run.id and is_current(found)
    assert found["vocabulary"] == VOCABULARY and 15 <= found["rows_touched"] <= 20
    assert [len(found["bytes"][part]["steps"]) for part in ("embedding", "rest")] == [2, 2]
    (embedding,), (rest,) = (found["bytes"][part]["dense"] for part in ("embedding", "rest"))
    assert embedding["up"] > 4 * 64 * VOCABULARY  # nothing of it is zero
    for step in found["bytes"]["embedding"]["steps"]:
        for variant in ("up", "down"):
            assert 4 * 64 * 15 < step[variant] < embedding[variant] / 5  # at most 20 of 300 rows, and headers
    for step in found["bytes"]["rest"]["steps"]:
        assert step["up"] > 0.95 * rest["up"]


def test_rows_that_are_touched() -> None:
    gradient = torch.zeros(5, 3)
    gradient[1, 2], gradient[4] = -1, 1
    assert sparsity.rows_touched(gradient) == 2


def test_words_are_numbered_in_alphabetical_order_and_rare_ones_share_a_number() -> None:
    found = data.number_words(["To be, or not to be", "O’er the O’er; be not, the"])
    vocabulary = found["vocabulary"].tolist()
    assert vocabulary == ["", ",", "be", "not", "o’er", "the", "to"]
    words = [vocabulary[index] for index in found["train"]]
    assert words[:7] == ["to", "be", ",", "", "not", "to", "be"]
    assert words[7:] == ["o’er", "the", "o’er", "", "be", "not", ",", "the"]
