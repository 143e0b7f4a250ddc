"""Digests: lists, timeouts, acknowledgements. The clock is the test's."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_switch.p4runtime.digests import Digests
from p4reduce_switch.p4runtime.status import RequestError
from rigs.p4rt import SCHEMA, Raw, Served, code_of, entry

ID = SCHEMA.digests["sighting_t"].id
INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


class Bench:
    """Digests with a clock that stands still until it is moved, and a list of what was sent."""

    def __init__(self) -> None:
        self.now = 100.0
        self.listening = True
        self.lists: list[tuple[int, list[tuple[int, ...]]]] = []
        self.changed = threading.Condition()
        self.digests = Digests(SCHEMA, self._send, self.changed, lambda: self.now)

    def _send(self, message: Any) -> bool:
        digest_list = message.digest
        rows = [tuple(int.from_bytes(m.bitstring, "big") for m in data.struct.members) for data in digest_list.data]
        if self.listening:
            self.lists.append((digest_list.list_id, rows))
        return self.listening

    def configure(self, operation: int = INSERT, **config: int) -> None:
        with self.changed:
            self.digests.write(operation, p4r.DigestEntry(digest_id=ID, config=config))

    def see(self, *macs: int) -> None:
        with self.changed:
            self.digests.add("sighting_t", [(mac, 1) for mac in macs])

    def tick(self, seconds: float = 0.0) -> float | None:
        self.now += seconds
        with self.changed:
            return self.digests.tick()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def macs(bench: Bench) -> list[list[int]]:
    return [[row[0] for row in rows] for _, rows in bench.lists]


def test_without_max_timeout_each_message_is_sent_at_once(bench: Bench) -> None:
    bench.configure(max_list_size=10, ack_timeout_ns=10**9)
    bench.see(1, 2)
    assert bench.lists == [(1, [(1, 1)]), (2, [(2, 1)])]


def test_lists_are_sent_when_full_or_at_max_timeout(bench: Bench) -> None:
    bench.configure(max_list_size=3, max_timeout_ns=2 * 10**9, ack_timeout_ns=10**10)
    bench.see(1, 2, 1)
    assert bench.tick() == 102.0
    assert bench.lists == []
    bench.see(3, 4)
    assert macs(bench) == [[1, 2, 3]]
    bench.tick(2.0)
    assert macs(bench) == [[1, 2, 3], [4]]


def test_a_message_is_not_repeated_before_its_acknowledgement(bench: Bench) -> None:
    bench.configure(max_list_size=1, ack_timeout_ns=10**10)
    bench.see(1)
    bench.see(1)
    bench.digests.acknowledge(ID, 99)
    bench.see(1)
    assert macs(bench) == [[1]]
    bench.digests.acknowledge(ID, 1)
    bench.see(1)
    assert macs(bench) == [[1], [1]]


def test_a_message_is_not_repeated_before_ack_timeout(bench: Bench) -> None:
    bench.configure(max_list_size=1, ack_timeout_ns=5 * 10**9)
    bench.see(1)
    assert bench.tick() == 105.0
    bench.tick(4.9)
    bench.see(1)
    assert macs(bench) == [[1]]
    bench.tick(0.2)
    bench.see(1)
    assert macs(bench) == [[1], [1]]


def test_without_ack_timeout_messages_are_repeated(bench: Bench) -> None:
    bench.configure(max_list_size=1)
    bench.see(1)
    bench.see(1)
    assert macs(bench) == [[1], [1]]


def test_messages_without_a_primary_are_sent_again(bench: Bench) -> None:
    bench.configure(max_list_size=1, ack_timeout_ns=10**10)
    bench.listening = False
    bench.see(1)
    bench.listening = True
    bench.see(1)
    assert macs(bench) == [[1]]
    bench.digests.drop_unacknowledged()
    bench.see(1)
    assert macs(bench) == [[1], [1]]


def test_digest_entries_are_inserted_modified_and_deleted_as_specified(bench: Bench) -> None:
    def refused(operation: int) -> str:
        with pytest.raises(RequestError) as caught:
            bench.configure(operation, max_list_size=1)
        return str(caught.value.code.name)

    assert [refused(MODIFY), refused(DELETE)] == ["NOT_FOUND", "NOT_FOUND"]
    bench.configure(max_list_size=1)
    assert refused(INSERT) == "ALREADY_EXISTS"
    bench.configure(DELETE)
    bench.see(1)
    assert bench.lists == []


def test_digest_lists_and_acknowledgements_over_grpc(raw: Raw, switch: Served) -> None:
    config = p4r.Entity(digest_entry={"digest_id": ID, "config": {"max_list_size": 1, "ack_timeout_ns": 10**12}})
    assert code_of(raw.read, config) == "NOT_FOUND"
    report = entry("keyless_table", "", "report")
    report.table_entry.is_default_action = True
    assert raw.write(("INSERT", config), ("MODIFY", report)) == ["OK"] * 2
    assert raw.read(p4r.Entity(digest_entry={"digest_id": ID})) == [config]
    sample = (7).to_bytes(6, "big") + bytes(9)
    switch.switch.receive(300, sample)
    first = raw.next().digest
    assert first.digest_id == ID
    assert [m.bitstring for m in first.data[0].struct.members] == [b"\x07", b"\x01\x2c"]
    switch.switch.receive(300, sample)
    raw.send(digest_ack=p4r.DigestListAck(digest_id=99))
    assert raw.next().error.canonical_code == 3, "nothing was sent in between"
    raw.send(digest_ack=p4r.DigestListAck(digest_id=ID, list_id=first.list_id))
    raw.send(digest_ack=p4r.DigestListAck(digest_id=99))
    assert raw.next().error.canonical_code == 3, "the acknowledgement has been read"
    switch.switch.receive(300, sample)
    assert raw.next().digest.list_id == first.list_id + 1
