"""Interfaces that go down and come up: who is told, and when."""

from __future__ import annotations

import queue
from pathlib import Path

from p4reduce_switch.ports.link_states import LinkStates
from rigs.limits import LIMIT_S


def test_a_change_is_reported_once(tmp_path: Path) -> None:
    told: list[tuple[int, bool]] = []
    for name, state in (("a", "up"), ("b", "down"), ("c", "unknown")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "operstate").write_text(state + "\n")
    links = LinkStates({1: "a", 2: "b", 3: "c", 4: "gone"}, lambda *change: told.append(change), tmp_path)
    links.poll()
    assert told == [(2, False), (4, False)], "all are up until they are seen"
    links.poll()
    assert len(told) == 2
    (tmp_path / "a/operstate").write_text("lowerlayerdown")
    (tmp_path / "b/operstate").write_text("up")
    links.poll()
    assert told[2:] == [(1, False), (2, True)]


def test_link_states_are_polled_by_a_thread(tmp_path: Path) -> None:
    told: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()
    (tmp_path / "a").mkdir()
    (tmp_path / "a/operstate").write_text("up")
    links = LinkStates({7: "a"}, lambda *change: told.put(change), tmp_path)
    links.start()
    try:
        for state, up in (("down", False), ("up", True)):
            (tmp_path / "a/operstate").write_text(state)
            assert told.get(timeout=LIMIT_S) == (7, up)
    finally:
        links.close()
    (tmp_path / "a/operstate").write_text("down")
    assert told.empty()


def test_closing_before_the_start_does_nothing(tmp_path: Path) -> None:
    LinkStates({}, lambda *_: None, tmp_path).close()
