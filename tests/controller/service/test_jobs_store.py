"""The controller's memory: jobs come back as they were, no epoch meets its own old rounds, trouble is told."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_contracts.jobs.answers import Count, Usage, WaitingSlot
from p4reduce_contracts.jobs.errors import EpochError, StoreError
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_controller.registry.hello import Address, Hello
from p4reduce_controller.registry.job import LAST_EPOCH
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.registry.slots import SlotRange
from p4reduce_controller.service import saved
from p4reduce_controller.service.store import FILE, KEPT_S, Store
from rigs.registry import MemoryStore

SLOTS = SlotRange(0, 4)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    one = Store(tmp_path / "new" / "folder")
    one.open()
    yield one
    one.close()


def reopened(store: Store) -> Store:
    store.close()
    store.open()
    return store


def not_on_the_disk(store: Store) -> None:
    """Commits no longer wait until the disk has them, which takes a hundred times as long as the rest."""
    assert store._db is not None
    store._db.execute("PRAGMA synchronous = OFF")


def test_a_saved_job_is_read_back(store: Store) -> None:
    registry = Registry(SwitchGeometry(4, 8, 16), store, 10.0)
    job = registry.create("train", 2, 5)
    registry.create("other", 1)
    for rank in range(2):
        member = registry.join("train", rank, 2, 0.0)
        registry.hello(Hello(job.id, member.nonce, Address(rank, 2**48 - 1, 2**32 - 1, 4000)), 0.0)
    assert job.grants
    assert [one.grants for one in reopened(store).jobs()] == [{}, {}], "no member has the grant yet"
    registry.count_from(job.grants[ONLY_SWITCH], {"results": Count(2**60, 7)})
    job.members[0].slot_wait = WaitingSlot(0, 1, 2, 3.0, 4)  # not saved: it is over by then
    registry.installed(job.grants[ONLY_SWITCH], 0.0)
    found = reopened(store).jobs()
    assert [one.name for one in found] == ["other", "train"]
    for member in job.members.values():
        member.last_seen, member.slot_wait = 0.0, None
    assert found[1] == job
    registry.remove("train")
    assert [one.name for one in reopened(store).jobs()] == ["other"]


def test_jobs_that_ended_are_kept_for_a_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that a rank reports after the end are kept too, also when the controller has started again."""
    monkeypatch.setattr("p4reduce_controller.service.store.KEPT_JOBS", 3)
    now = [1e9]
    monkeypatch.setattr("p4reduce_controller.service.store.time.time", lambda: now[0])
    registry = Registry(SwitchGeometry(4, 8, 16), store, 10.0)
    for number in range(5):
        registry.create(f"job{number}", 1, created=now[0])
        member = registry.join(f"job{number}", 0, 1, 0.0, host="here")
        now[0] += KEPT_S / 4
        registry.remove(f"job{number}")
        registry.leave(member.nonce, Usage(number, 100, 10, 1))
    registry.create("unused", 1)
    registry.remove("unused")
    found = reopened(store).ended()
    assert [job.name for _, job in found] == ["job4", "job3", "job2"]
    assert (found[0][0], found[0][1].usage, found[0][1].hosts) == (now[0], Usage(4, 100, 10, 1), {"0": "here"})
    assert not found[0][1].members and [job.name for _, job in store.ended("job3")] == ["job3"]
    now[0] += KEPT_S / 2 + 1
    assert [job.name for _, job in store.ended()] == ["job4", "job3"]


def test_epochs_and_the_era_are_persistent(store: Store) -> None:
    era = store.era()
    assert [store.draw_epoch(SLOTS, ()), store.draw_epoch(SLOTS, ())] == [1, 2]
    assert reopened(store).draw_epoch(SLOTS, {3}) == 4
    assert (store.era(), store.count_draws()) == (era, 3)
    fresh = store.begin_era()
    assert fresh not in (0, era)
    assert (reopened(store).era(), store.count_draws()) == (fresh, 0)
    assert store.draw_epoch(SLOTS, ()) == 5


def test_an_epoch_that_was_issued_is_on_disk_before_the_store_is_closed(store: Store, tmp_path: Path) -> None:
    """A copy of the files stands for those of a process that was killed."""
    assert [store.draw_epoch(SLOTS, ()) for _ in range(2)] == [1, 2]
    copy = Store(tmp_path / "copy")
    shutil.copytree(store.path.parent, copy.path.parent)
    copy.open()
    assert (copy.count_draws(), copy.draw_epoch(SLOTS, ())) == (2, 3)
    copy.close()


def at_the_end(store: Store, epoch: int = LAST_EPOCH) -> None:
    """All epochs up to `epoch` were drawn for SLOTS."""
    store.close()
    with closing(sqlite3.connect(store.path)) as db:
        db.executemany("INSERT INTO epochs VALUES ('switch', ?, 0, 4)", ((number,) for number in range(1, epoch + 1)))
        db.execute("UPDATE facts SET last_epoch = ?", (epoch,))
        db.commit()
    store.open()


def test_the_epoch_counter_wraps_and_skips_epochs_of_the_slots(store: Store) -> None:
    at_the_end(store, LAST_EPOCH - 1)
    assert store.draw_epoch(SLOTS, ()) == LAST_EPOCH
    elsewhere = SlotRange(4, 4)
    assert store.draw_epoch(elsewhere, {1, 2}) == 3, "these slots remember nothing; 1 and 2 are in use"
    with pytest.raises(EpochError, match="slots 0 to 3 .* used all 65535 epochs: remove the other jobs"):
        store.draw_epoch(SLOTS, ())
    assert store.draw_epoch(elsewhere, ()) == 4
    store.begin_era()
    assert store.draw_epoch(SLOTS, ()) == 5


@pytest.mark.fault("epoch numbers wrap: no slot gets an epoch twice")
@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)) | st.sampled_from(["era", "restart"]), max_size=40))
def test_a_slot_never_has_the_same_epoch_twice(tmp_path_factory: pytest.TempPathFactory, steps: list[object]) -> None:
    store = Store(tmp_path_factory.mktemp("state"))
    store.open()
    at_the_end(store, 0)
    not_on_the_disk(store)
    with store._written() as db:
        db.execute("UPDATE facts SET last_epoch = ?", (LAST_EPOCH - 10,))
    remembered: dict[int, set[int]] = {slot: set() for slot in range(10)}
    for step in steps:
        if step == "era":
            store.begin_era()
            remembered = {slot: set() for slot in range(10)}
        elif step == "restart":
            not_on_the_disk(reopened(store))
        else:
            base, count = step  # type: ignore[misc]
            epoch = store.draw_epoch(SlotRange(base, count), ())
            for slot in range(base, base + count):
                assert 1 <= epoch <= LAST_EPOCH
                assert epoch not in remembered[slot]
                remembered[slot].add(epoch)
    store.close()


@pytest.mark.fault("state put back from a copy while the switches of two racks run on: those ahead of it begin an era")
def test_eras_and_epochs_are_those_of_a_switch(store: Store) -> None:
    eras = [store.era("a"), store.era("b")]
    assert len({0, *eras}) == 3
    assert [store.era("a"), store.era("b")] == eras
    slots = SlotRange(0, 4)
    assert [store.draw_epoch(slots, (), ["a", "b"]), store.draw_epoch(slots, (), ["b"])] == [1, 2]
    assert (store.count_draws("a"), store.count_draws("b")) == (1, 2)
    assert store.begin_era("b") != eras[1]
    assert (store.count_epochs("a"), store.count_epochs("b")) == (1, 0)
    assert store.era("a") == eras[0]


def test_an_epoch_is_new_to_every_switch_of_the_tree(store: Store) -> None:
    with store._written() as db:
        rows = [("a", epoch, 0, 4) for epoch in range(1, 10)] + [("b", 10, 0, 4)]
        db.executemany("INSERT INTO epochs VALUES (?, ?, ?, ?)", rows)
        db.execute("UPDATE facts SET last_epoch = ?", (LAST_EPOCH,))
    slots = SlotRange(3, 2)
    assert store.draw_epoch(slots, (), ["a", "b"]) == 11
    with store._written() as db:
        rows = [("b", epoch, 0, 4) for epoch in range(1, LAST_EPOCH + 1)]
        db.executemany("INSERT INTO epochs VALUES (?, ?, ?, ?)", rows)
    assert store.draw_epoch(slots, (), ["a"]) == 12
    with pytest.raises(EpochError, match="used all 65535 epochs"):
        store.draw_epoch(slots, (), ["a", "b"])


@pytest.mark.fault("two controllers on one state folder: the second ends with an error")
def test_the_file_is_locked_and_private(store: Store) -> None:
    with pytest.raises(StoreError, match="another controller is using it; stop that one, or set state_dir"):
        Store(store.path.parent).open()
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    store.close()
    second = Store(store.path.parent)
    second.open()
    second.close()


@pytest.mark.fault(
    "the controller's file, or one of SQLite's beside it, is accessible to others, as after a restore from a "
    "backup: mode 0600 at the start, and a warning"
)
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("mode", [0o644, 0o620, 0o604])
def test_permissions_of_other_users_are_removed_at_the_start(
    store: Store, caplog: pytest.LogCaptureFixture, suffix: str, mode: int
) -> None:
    """A file that was restored from a backup may have other permissions."""
    store.close()
    file = store.path.with_name(store.path.name + suffix)
    file.touch()
    file.chmod(mode)
    store.open()
    assert not file.exists() or stat.S_IMODE(file.stat().st_mode) == 0o600
    (record,) = [each for each in caplog.records if each.getMessage() == "state file permissions tightened"]
    fields = record.__dict__["p4reduce_fields"]
    assert (fields["file"], fields["mode"]) == (str(file.resolve()), f"{mode:04o}")
    caplog.clear()
    reopened(store)
    assert caplog.records == []


@pytest.mark.fault("the controller's file belongs to another user: StoreError that names both users and the remedy")
@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_of_another_user_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    store.close()
    file = store.path.with_name(store.path.name + suffix)
    file.touch()
    file.chmod(0o644)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    advice = rf"run the controller as that user, change the owner \(`chown {user + 1} .*`\), or set state_dir"
    with pytest.raises(StoreError, match=rf"{FILE}.* belongs to user {user}, and .* user {user + 1}: {advice}"):
        store.open()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


@pytest.mark.parametrize("content", [b"x" * 5000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_of_another_format_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(StoreError, match=rf"{FILE} is damaged: .*; move it away and start the controller again"):
        Store(tmp_path).open()


@pytest.mark.fault("a damaged page in the controller's file: StoreError that names the remedy")
def test_a_damaged_page_is_an_error(store: Store) -> None:
    at_the_end(store)
    store.close()
    with store.path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(os.urandom(4096 * 3))
    with pytest.raises(StoreError, match="is damaged"):
        store.open()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": 1}', "nonsense"])
def test_a_damaged_job_is_an_error(store: Store, text: str) -> None:
    with store._written() as db:
        db.execute("INSERT INTO jobs VALUES ('train', ?)", (text,))
    with pytest.raises(StoreError, match="is damaged: .*; move it away"):
        store.jobs()


@pytest.mark.fault(
    "a value in the controller's file with a wrong type or out of range: StoreError at the start, with file, "
    "table, column, value and remedy"
)
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE eras SET era = 7", "eras has era = '7', where it must be 16 hexadecimal digits, not all 0"),
        ("UPDATE eras SET era = '0000000000000000'", "eras has era = '0000000000000000', where"),
        ("UPDATE eras SET era = x'00'", "eras has era = b'.x00', where"),
        (
            "UPDATE facts SET last_epoch = -1",
            "facts has last_epoch = -1, where it must be a whole number from 0 to 65535",
        ),
        ("UPDATE facts SET last_epoch = 65536", "facts has last_epoch = 65536, where"),
        ("DELETE FROM facts", "facts has 0 rows, where it must be exactly 1"),
        ("INSERT INTO facts SELECT * FROM facts", "facts has 2 rows, where"),
        (
            "INSERT INTO epochs VALUES ('switch', 'one', 0, 4)",
            "epochs has epoch = 'one', where it must be a whole number from 1",
        ),
        ("INSERT INTO epochs VALUES ('switch', 1, -1, 4)", "epochs has first_slot = -1, where .* from 0 to 32767"),
        (
            "INSERT INTO epochs VALUES ('switch', 1, 4, 4)",
            "epochs has end_slot = 4, where .* above first_slot, at most 32768",
        ),
        ("INSERT INTO epochs VALUES ('switch', 1, 0, 32769)", "epochs has end_slot = 32769, where"),
        ("INSERT INTO jobs VALUES (NULL, '{}')", "jobs has name = None, where it must be text"),
        ("INSERT INTO jobs VALUES ('train', x'7b7d')", "jobs has job = b'{}', where it must be text"),
        ("DROP TABLE epochs", "no such table: epochs"),
    ],
)
def test_invalid_values_in_the_file_are_refused_at_the_start(store: Store, statement: str, message: str) -> None:
    store.begin_era()
    store.close()
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(statement)
        db.commit()
    with pytest.raises(
        StoreError, match=rf"{FILE} is damaged: .*{message}.*; move it away and start the controller again"
    ):
        store.open()


@pytest.mark.fault("two saved jobs with one id, or a job under another name: StoreError at the start, with the remedy")
def test_jobs_that_contradict_each_other_are_refused(store: Store) -> None:
    job = Registry(SwitchGeometry(4, 8, 16), store, 10.0).create("train", 2, 4)
    text = saved.to_text(job)
    with store._written() as db:
        db.execute("INSERT INTO jobs VALUES ('other', ?)", (text,))
    with pytest.raises(StoreError, match="table jobs has name = 'other', where it must be 'train', as in its job"):
        store.jobs()
    with store._written() as db:
        db.execute("UPDATE jobs SET job = ? WHERE name = 'other'", (text.replace("train", "other"),))
    with pytest.raises(StoreError, match="table jobs has id = 1 in the jobs other and train, where"):
        store.jobs()


def test_a_file_of_another_version_is_an_error(store: Store) -> None:
    with store._written() as db:
        db.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(StoreError, match="has version 99 and this controller reads version 4"):
        store.open()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/below: .*; set state_dir under \[controller\]"):
        Store(tmp_path / "file" / "below").open()


@pytest.mark.fault("the disk is full: StoreError; it recovers when there is space")
def test_a_full_disk_is_an_error_until_space_is_free(store: Store) -> None:
    (pages,) = next(store._opened().execute("PRAGMA page_count"))
    store._opened().execute(f"PRAGMA max_page_count = {pages}")
    jobs = Registry(SwitchGeometry(4, 8, 64), MemoryStore(), 10.0)
    job = jobs.create("train", 2)
    job.last_reset = "x" * 100_000
    with pytest.raises(StoreError, match="no space is left on the disk; make room"):
        store.save(job)
    store._opened().execute("PRAGMA max_page_count = 100000")
    store.save(job)
    assert store.jobs() == [job]


@pytest.mark.fault("the disk fails under running jobs: the jobs continue and are saved later")
def test_a_disk_error_stops_no_job_and_the_changes_are_saved_later() -> None:
    store = MemoryStore()
    registry = Registry(SwitchGeometry(4, 8, 16), store, 10.0)
    job = registry.create("train", 1, 8)
    member = registry.join("train", 0, 1, 0.0)
    registry.hello(Hello(job.id, member.nonce, Address(1, 2, 3, 4)), 0.0)
    assert job.grants
    store.fail(True)
    registry.installed(job.grants[ONLY_SWITCH], 0.0)
    assert job.active
    with pytest.raises(StoreError):
        registry.create("other", 1)
    with pytest.raises(StoreError):
        registry.remove("train")
    assert [one.name for one in registry.jobs()] == ["train"]
    registry.sweep(1.0)
    assert not store.jobs()[0].active
    store.fail(False)
    registry.sweep(2.0)
    assert store.jobs()[0].active
    assert registry.create("other", 1).slots == SlotRange(8, 8), "nothing is left of the refused job"


def test_jobs_for_which_the_pipeline_has_no_room_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    large = Registry(SwitchGeometry(8, 32, 64), store, 10.0)
    for name, world_size, slots in (("fits", 2, 8), ("many", 30, 2), ("wide", 2, 40)):
        large.create(name, world_size, slots)
    small = Registry(SwitchGeometry(4, 8, 16), store, 10.0)
    small.restore(store.jobs(), 0.0)
    assert [job.name for job in small.jobs()] == ["fits"]
    told = [record.__dict__["p4reduce_fields"] for record in caplog.records if record.getMessage() == "job dropped"]
    assert [fields["job"] for fields in told] == ["many", "wide"]
    assert told[0]["cause"].startswith("world size too large")
    assert told[1]["cause"].startswith("slots 10 to 49 are not all free")
    assert [job.name for job in store.jobs()] == ["fits"]


@pytest.mark.fault("an invalid saved job: StoreError that names the position")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", 5),
        ("world_size", 1025),
        ("slots", {"base": 0, "count": None}),
        ("members", [{"rank": 7, "nonce": 1}]),
        ("last_reset", []),
        ("counted_from", {"results": {"packets": "many"}}),
        ("name", "no name"),
        ("active", True),
        ("grants", 5),
        ("members", [{"rank": 0, "nonce": 1}, {"rank": 0, "nonce": 2}]),
    ],
)
def test_a_saved_job_with_a_wrong_value_is_refused(key: str, value: object) -> None:
    """It would break the controller later, at whatever uses that value first."""
    fields = json.loads(saved.to_text(Registry(SwitchGeometry(4, 8, 16), MemoryStore(), 10.0).create("train", 2)))
    with pytest.raises(ValueError, match=rf"{key.split('_')[0]}|ranks and members|cannot name a job"):
        saved.from_text(json.dumps({**fields, key: value}))
