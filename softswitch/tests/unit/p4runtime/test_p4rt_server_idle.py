"""Idle timeouts: when the controller is told of an entry, and how long ago it was hit."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import codec
from p4reduce_runtime.p4runtime.entries import TableEntry
from p4reduce_runtime.p4runtime.schema import Schema, parse_p4info
from p4reduce_switch.p4runtime import pipeline as pipelines
from p4reduce_switch.p4runtime.idle_timeouts import (
    MAX_ENTRIES_PER_NOTIFICATION,
    MAX_STALE_TIMERS,
    MIN_TIMEOUT_US,
    IdleTimeouts,
)
from p4reduce_switch.program import Program
from p4reduce_switch.program.llvm import batch_runner
from rigs.p4rt import Raw, Served, config

STEM = Path(__file__).parents[2] / "interop/every_entity"
P4INFO = parse_p4info(STEM.with_suffix(".p4info.txtpb").read_text())
CONFIG = config(STEM.with_suffix(".json").read_bytes(), p4info=P4INFO)
SCHEMA = Schema.from_p4info(P4INFO)
SEND = "MainIngress.send"
SECOND = 1_000_000_000
INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


def aging(key: int, timeout_ns: int = 0) -> p4r.Entity:
    return timed(TableEntry("MainIngress.aging", {"h.sample.key": (key, 0xFF)}, SEND, {"port": 1}, 5), timeout_ns)


def timed(entry: TableEntry, timeout_ns: int) -> p4r.Entity:
    entity = codec.encode(SCHEMA, entry)
    entity.table_entry.action.action.params[0].value = b"\1"  # as the switch sends it
    entity.table_entry.idle_timeout_ns = timeout_ns
    return entity


def frame(key: int) -> bytes:
    return bytes((0, key, 0, 0, 0))


class Rig:
    """The aging table, with a clock of its own and a list of who was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_us = 1_000_000
        monkeypatch.setattr(batch_runner, "microseconds", lambda: self.now_us)
        lock = threading.Condition()
        self.pipeline = pipelines.load(CONFIG, self._send, lock, clock_us=lambda: self.now_us)
        self.idle = self.pipeline.idle_timeouts
        self.program: Program = self.pipeline.program
        table: Any = self.program.tables["MainIngress.aging"]
        table.clock = lambda: self.now_us
        self.sent: list[Any] = []
        self._lock = lock

    def _send(self, message: Any) -> bool:
        self.sent.append(message.idle_timeout_notification)
        return True

    def write(self, operation: int, entry: p4r.Entity) -> None:
        with self._lock:
            request = entry.table_entry
            self.pipeline.tables[request.table_id].write(operation, request)

    def told(self) -> list[int]:
        """The keys of the entries that are told of now."""
        with self._lock:
            self.idle.tick()
        sent, self.sent = self.sent, []
        return [
            entry.match[0].ternary.value[0] if entry.match else 0 for message in sent for entry in message.table_entry
        ]


def test_idle_entries_are_notified_once_per_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.write(INSERT, aging(1, SECOND))
    rig.write(INSERT, aging(2, 3 * SECOND))
    rig.write(INSERT, aging(3))
    assert rig.told() == []
    rig.now_us += 999_999
    assert rig.told() == []
    rig.now_us += 1
    assert rig.told() == [1]
    assert rig.told() == [], "the timer starts anew"
    rig.now_us += 1_000_000
    assert rig.told() == [1]
    rig.now_us += 1_000_000
    assert sorted(rig.told()) == [1, 2]
    rig.program.process(1, frame(2))
    rig.now_us += 2_900_000
    rig.program.process(1, frame(1))
    assert rig.told() == [], "a hit starts the timer anew"
    rig.now_us += 100_000
    assert rig.told() == [2]


def test_writes_restart_or_end_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    for key in (1, 2, 3):
        rig.write(INSERT, aging(key, SECOND))
    rig.write(DELETE, aging(1))
    rig.write(MODIFY, aging(2))
    rig.write(MODIFY, aging(3, 2 * SECOND))
    rig.now_us += 1_000_000
    assert rig.told() == []
    rig.now_us += 1_000_000
    assert rig.told() == [3]
    rig.write(INSERT, aging(1, SECOND))
    rig.now_us += 1_000_000
    assert rig.told() == [1]


def test_many_writes_keep_few_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.write(INSERT, aging(1, SECOND))
    for _ in range(1000):
        rig.write(MODIFY, aging(1, 3600 * SECOND))
    assert len(rig.idle._heap) <= 2 + MAX_STALE_TIMERS
    rig.write(MODIFY, aging(1, SECOND))
    rig.now_us += 1_000_000
    assert rig.told() == [1]


def test_timeouts_below_the_minimum_last_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.write(INSERT, aging(1, 1))
    rig.now_us += MIN_TIMEOUT_US - 1
    assert rig.told() == []
    rig.now_us += 1
    assert rig.told() == [1]


def test_many_idle_entries_are_notified_in_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    for number in range(256):
        rig.write(INSERT, aging(number, SECOND))
    for number in range(1, 129):
        for mask in (0xFE, 0xFC):
            entry = TableEntry("MainIngress.aging", {"h.sample.key": (number, mask)}, SEND, {"port": 1}, 1000 + number)
            rig.write(INSERT, timed(entry, SECOND))
    rig.now_us += 1_000_000
    with rig._lock:
        rig.idle.tick()
    assert [len(message.table_entry) for message in rig.sent] == [MAX_ENTRIES_PER_NOTIFICATION]
    rig.write(INSERT, timed(TableEntry("MainIngress.aging", {}, SEND, {"port": 1}, 1), SECOND))
    rig.now_us += 1_000_000
    with rig._lock:
        rig.idle.tick()
    assert [len(message.table_entry) for message in rig.sent[1:]] == [MAX_ENTRIES_PER_NOTIFICATION, 1]


# ---- through P4Runtime


@pytest.fixture
def raw(switch: Served) -> Iterator[Raw]:
    """Primary, with the program committed."""
    with Raw(switch.address) as one:
        assert one.arbitrate().status.code == 0
        one.set_config(config=CONFIG)
        yield one


def test_the_primary_controller_receives_idle_timeout_notifications(raw: Raw) -> None:
    given = aging(9, SECOND // 20)
    given.table_entry.metadata, given.table_entry.controller_metadata = b"mine", 7
    assert raw.write(("INSERT", given)) == ["OK"]
    message = raw.next()
    assert message.WhichOneof("update") == "idle_timeout_notification"
    (told,) = message.idle_timeout_notification.table_entry
    given.table_entry.ClearField("action")
    assert told == given.table_entry
    assert 0 <= time.time_ns() - message.idle_timeout_notification.timestamp < 60 * SECOND
    assert raw.next().WhichOneof("update") == "idle_timeout_notification", "and again"


@pytest.mark.fault("the switch's timers meet an unexpected error: it is logged, and they go on")
def test_timers_go_on_after_an_unexpected_error(
    raw: Raw, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tick, errors = IdleTimeouts.tick, [ZeroDivisionError()]

    def fails_once(self: IdleTimeouts) -> float | None:
        if errors:
            raise errors.pop()
        return tick(self)

    monkeypatch.setattr(IdleTimeouts, "tick", fails_once)
    assert raw.write(("INSERT", aging(9, SECOND // 20))) == ["OK"]
    assert raw.next().WhichOneof("update") == "idle_timeout_notification"
    assert "the thread p4runtime-timers failed" in caplog.messages


def test_timeouts_and_idle_times_are_read(raw: Raw, switch: Served) -> None:
    entry = aging(9, 3600 * SECOND)
    assert raw.write(("INSERT", entry), ("INSERT", aging(8))) == ["OK", "OK"]
    query = p4r.Entity()
    query.table_entry.table_id = SCHEMA.tables["MainIngress.aging"].id
    found = raw.read(query)
    assert found == [entry, aging(8)]
    assert not any(one.table_entry.HasField("time_since_last_hit") for one in found)
    query.table_entry.time_since_last_hit.SetInParent()

    def elapsed() -> list[int]:
        return [one.table_entry.time_since_last_hit.elapsed_ns for one in raw.read(query)]

    time.sleep(0.05)
    first = elapsed()
    assert min(first) >= SECOND // 20
    switch.switch.receive(1, frame(8))
    second = elapsed()
    assert second[0] >= first[0] and second[1] < second[0]


def test_timeouts_survive_a_reconciled_program(raw: Raw) -> None:
    assert raw.write(("INSERT", aging(9, SECOND // 10))) == ["OK"]
    raw.set_config("RECONCILE_AND_COMMIT", CONFIG)
    assert raw.next().WhichOneof("update") == "idle_timeout_notification"
