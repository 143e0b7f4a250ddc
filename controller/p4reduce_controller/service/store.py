"""The controller's persistent state in one SQLite file: its jobs with their leases, and the epochs it has used.

A slot's registers on the switch hold rounds of the epochs that used it, and P4Runtime cannot clear them. Frames of a
job with the same epoch number would be dropped as STALE. So an epoch is on disk before it is used, together
with the slots it is for, and is not used for any of these slots again while the registers may hold it.

The time from one setting of a switch's pipeline, which zeroes all registers, to the next is an era of that switch. Its
random number goes to the switch as the pipeline's cookie: a switch with this cookie holds rounds of this era's epochs
only, also after a restart of the controller. A job's epoch counts as used in every switch of its tree.

This file may be put back from a copy, while the switch keeps its registers and cookie. So the switch also keeps how
many epochs were drawn for it in the era, written before the entries of each grant (`EntryWriter.install`): a file with
fewer draws does not know all epochs that the registers hold, and the controller begins another era.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from p4reduce_contracts.jobs.errors import EpochError, StoreError
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_contracts.wire.numbers import MAX_SLOTS
from p4reduce_controller.registry.job import LAST_EPOCH, Job
from p4reduce_controller.registry.slots import SlotRange
from p4reduce_controller.service import saved
from p4reduce_runtime.logs import event

_log = logging.getLogger(__name__)

FILE = "controller.sqlite"
IN_MEMORY = ":memory:"
"""The `state_dir` of a controller that keeps nothing; SQLite's own word."""
_SCHEMA_VERSION = 4
KEPT_S = 30 * 86400.0
"""Seconds that a removed job is kept."""
KEPT_JOBS = 1000
_LOCK_WAIT_S = 1.0  # for a controller that is just ending
_TABLES = """
CREATE TABLE ended (name TEXT NOT NULL, created REAL NOT NULL, ended REAL NOT NULL, job TEXT NOT NULL);
CREATE TABLE facts (last_epoch INTEGER NOT NULL);
CREATE TABLE eras (switch TEXT PRIMARY KEY, era TEXT NOT NULL);
CREATE TABLE jobs (name TEXT PRIMARY KEY, job TEXT NOT NULL);
CREATE TABLE epochs (
    switch TEXT NOT NULL, epoch INTEGER NOT NULL, first_slot INTEGER NOT NULL, end_slot INTEGER NOT NULL
);
CREATE INDEX epochs_by_switch ON epochs (switch, epoch);
"""


class Store:
    """The file in `state_dir`; of IN_MEMORY there is none, and its end is that of the process.

    Between `open` and `close` it belongs to this process alone. Not thread-safe.
    """

    def __init__(self, state_dir: Path) -> None:
        self.path = Path(IN_MEMORY) if str(state_dir) == IN_MEMORY else state_dir / FILE
        self._db: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open and lock the file, or create it, with mode 0600.

        Raises StoreError, which says what is wrong with it and what to do.
        """
        with self._store_errors():
            try:
                if str(self.path) != IN_MEMORY:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    self._restrict_access()
                    os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            except OSError as error:
                raise StoreError(f"cannot keep the jobs in {self.path.parent}: {error}; {_ANOTHER_FOLDER}") from error
            self._db = sqlite3.connect(self.path, timeout=_LOCK_WAIT_S, isolation_level=None)
            try:
                self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                self._prepare()
                self._check_values()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close and unlock the file. Idempotent."""
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def era(self, switch: str = ONLY_SWITCH) -> int:
        """Return the number of the present era of a switch, 64 bits and never 0."""
        found = self._rows("SELECT era FROM eras WHERE switch = ?", switch)
        return int(found[0][0], 16) if found else self.begin_era(switch)

    def begin_era(self, switch: str = ONLY_SWITCH) -> int:
        """Begin another era of a switch, before its pipeline is set with the number: no epoch counts as used there.

        Raises StoreError.
        """
        era = secrets.randbits(64) | 1
        with self._written() as db:
            db.execute("INSERT OR REPLACE INTO eras VALUES (?, ?)", (switch, f"{era:016x}"))
            db.execute("DELETE FROM epochs WHERE switch = ?", (switch,))
        return era

    def count_draws(self, switch: str = ONLY_SWITCH) -> int:
        """Return how many times an epoch was drawn for slots of a switch in this era; it only rises."""
        ((count,),) = self._rows("SELECT COUNT(*) FROM epochs WHERE switch = ?", switch)
        return int(count)

    def count_epochs(self, switch: str = ONLY_SWITCH) -> int:
        """Return how many epochs were issued in this era of a switch."""
        ((count,),) = self._rows("SELECT COUNT(DISTINCT epoch) FROM epochs WHERE switch = ?", switch)
        return int(count)

    def draw_epoch(self, slots: SlotRange, in_use: Collection[int], switches: Collection[str] = (ONLY_SWITCH,)) -> int:
        """Issue an epoch for `slots` of `switches`, which none of them has seen in its era, and that is not `in_use`.

        It is on disk before it is returned. Raises EpochError when there is none left, StoreError when the disk fails.
        """
        with self._written() as db:
            taken = set(in_use)
            for switch in switches:
                taken.update(epoch for (epoch,) in db.execute(_SEEN_BY, (switch, slots.end, slots.base)))
            last: int = self._rows("SELECT last_epoch FROM facts")[0][0]
            following = ((last + step) % LAST_EPOCH + 1 for step in range(LAST_EPOCH))
            epoch = next((epoch for epoch in following if epoch not in taken), None)
            if epoch is None:
                raise EpochError(
                    f"slots {slots.base} to {slots.end - 1} of the switch have used all {LAST_EPOCH} epochs: remove "
                    "the other jobs, or let them end; the controller clears a switch as soon as no job is running there"
                )
            rows = ((switch, epoch, slots.base, slots.end) for switch in switches)
            db.executemany("INSERT INTO epochs VALUES (?, ?, ?, ?)", rows)
            db.execute("UPDATE facts SET last_epoch = ?", (epoch,))
        return epoch

    def jobs(self) -> list[Job]:
        """All jobs as they were saved last. Raises StoreError."""
        found: dict[int, Job] = {}
        for name, text in self._rows("SELECT name, job FROM jobs ORDER BY name"):
            try:
                job = saved.from_text(text)
            except ValueError as error:
                raise self._damaged("jobs", f"job = {_shortened(text)}", f"a job: {error}") from error
            if job.name != name:
                raise self._damaged("jobs", f"name = {name!r}", f"{job.name!r}, as in its job")
            if job.id in found:
                raise self._damaged("jobs", f"id = {job.id} in the jobs {found[job.id].name} and {name}", "in one job")
            found[job.id] = job
        return list(found.values())

    def save(self, job: Job) -> None:
        """Save a job. Raises StoreError."""
        with self._written() as db:
            db.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?)", (job.name, saved.to_text(job)))

    def end(self, job: Job) -> None:
        """Remove a job, and keep what it was: for `KEPT_S`, and at most `KEPT_JOBS`. Raises StoreError.

        A job that no rank ever joined, and one of a shard, are not kept.
        """
        now = time.time()
        with self._written() as db:
            db.execute("DELETE FROM jobs WHERE name = ?", (job.name,))
            if job.joined and not job.part_of:
                row = (job.name, job.created, now, saved.to_text(job.as_ended()))
                db.execute("INSERT INTO ended VALUES (?, ?, ?, ?)", row)
            db.execute("DELETE FROM ended WHERE ended < ?", (now - KEPT_S,))
            db.execute(
                "DELETE FROM ended WHERE rowid NOT IN (SELECT rowid FROM ended ORDER BY rowid DESC LIMIT ?)",
                (KEPT_JOBS,),
            )

    def save_ended(self, job: Job) -> None:
        """Save what was counted in a job after it was removed. Raises StoreError."""
        with self._written() as db:
            text = saved.to_text(job.as_ended())
            db.execute("UPDATE ended SET job = ? WHERE name = ? AND created = ?", (text, job.name, job.created))

    def ended(self, name: str = "") -> list[tuple[float, Job]]:
        """Return the jobs that were removed, or those of a name, and when; the last one first. Raises StoreError."""
        query = "SELECT ended, job FROM ended WHERE ended >= ? AND (? = '' OR name = ?) ORDER BY rowid DESC"
        found = []
        for ended, text in self._rows(query, time.time() - KEPT_S, name, name):
            try:
                found.append((ended, saved.from_text(text)))
            except ValueError as error:
                raise self._damaged("ended", f"job = {_shortened(text)}", f"a job: {error}") from error
        return found

    def _restrict_access(self) -> None:
        """Give the file and what SQLite keeps beside it the mode 0600, for it holds what proves membership.

        Raises StoreError where one of them belongs to another user, OSError where the mode cannot be changed.
        """
        file = self.path.resolve()
        for path in (file, *(file.with_name(file.name + suffix) for suffix in _COMPANIONS)):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if status.st_uid != os.geteuid():
                raise StoreError(
                    f"{path} belongs to user {status.st_uid}, and this controller runs as user {os.geteuid()}: run the "
                    f"controller as that user, change the owner (`chown {os.geteuid()} {path}`), or {_ANOTHER_FOLDER}"
                )
            mode = stat.S_IMODE(status.st_mode)
            if mode & 0o077:
                path.chmod(0o600)
                event(
                    _log,
                    logging.WARNING,
                    "state file permissions tightened",
                    file=str(path),
                    mode=f"{mode:04o}",
                    advice="it is 0600 now; if another user may have read the file, remove and create the jobs",
                )

    def _check_values(self) -> None:
        """Raise StoreError, which names table, column and value, unless every value can be what this class wrote."""
        count = len(self._rows("SELECT 1 FROM facts"))
        if count != 1:
            raise self._damaged("facts", f"{count} rows", "exactly 1")
        for table, columns in _VALUES.items():
            for column, (holds, expected) in columns.items():
                for (value,) in self._rows(f"SELECT {column} FROM {table} WHERE NOT ({holds.format(column)}) LIMIT 1"):
                    raise self._damaged(table, f"{column} = {value!r}", expected)

    def _damaged(self, table: str, found: str, expected: str) -> StoreError:
        return StoreError(f"{self.path} is damaged: table {table} has {found}, where it must be {expected}; {_AFRESH}")

    def _prepare(self) -> None:
        with self._written() as db:
            (version,) = next(db.execute("PRAGMA user_version"))
            if version == 0 and not list(db.execute("SELECT name FROM sqlite_master")):
                for statement in filter(str.strip, _TABLES.split(";")):
                    db.execute(statement)
                db.execute("INSERT INTO facts VALUES (0)")
                db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            elif version != _SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path} has version {version} and this controller reads version {_SCHEMA_VERSION}; {_AFRESH}"
                )
            (health,) = next(db.execute("PRAGMA quick_check"))
            if health != "ok":
                raise StoreError(f"{self.path} is damaged: {health}; {_AFRESH}")

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._store_errors():
            return list(self._opened().execute(query, values))

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError(f"{self.path} is closed")
        return self._db

    @contextlib.contextmanager
    def _written(self) -> Iterator[sqlite3.Connection]:
        """One transaction: on disk when the block ends, or nothing of it."""
        with self._store_errors():
            db = self._opened()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back already
                    db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Raise SQLite's errors as a StoreError that says what to do."""
        try:
            yield
        except (sqlite3.Error, ValueError) as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise StoreError(
                    f"cannot open {self.path}: another controller is using it; stop that one, or {_ANOTHER_FOLDER}"
                ) from error
            if name.startswith("SQLITE_FULL"):
                raise StoreError(f"cannot write {self.path}: no space is left on the disk; make room") from error
            if name.startswith(("SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
                raise StoreError(f"cannot keep the jobs in {self.path}: {error}; {_ANOTHER_FOLDER}") from error
            raise StoreError(f"{self.path} is damaged: {error}; {_AFRESH}") from error


def _shortened(text: str) -> str:
    """The part of a job's text that an error shows: it begins with the name, and has nonces further on."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


_COMPANIONS = ("-wal", "-shm", "-journal")
_SHOWN = 40


def _whole(least: int, most: int) -> tuple[str, str]:
    return f"typeof({{0}}) = 'integer' AND {{0}} BETWEEN {least} AND {most}", f"a whole number from {least} to {most}"


_TEXT, _TIME = ("typeof({0}) = 'text'", "text"), ("typeof({0}) = 'real'", "a time")
_ERA = "typeof({0}) = 'text' AND length({0}) = 16 AND {0} NOT GLOB '*[^0-9a-f]*' AND {0} GLOB '*[^0]*'"
_END_SLOT = f"typeof({{0}}) = 'integer' AND {{0}} > first_slot AND {{0}} <= {MAX_SLOTS}"
_VALUES = {
    "facts": {"last_epoch": _whole(0, LAST_EPOCH)},
    "eras": {"era": (_ERA, "16 hexadecimal digits, not all 0"), "switch": _TEXT},
    "jobs": {"name": _TEXT, "job": _TEXT},
    "ended": {"name": _TEXT, "job": _TEXT, "created": _TIME, "ended": _TIME},
    "epochs": {
        "switch": _TEXT,
        "epoch": _whole(1, LAST_EPOCH),
        "first_slot": _whole(0, MAX_SLOTS - 1),
        "end_slot": (_END_SLOT, f"a whole number above first_slot, at most {MAX_SLOTS}"),
    },
}
"""What holds for the values of each table's columns, in SQL and in words."""
_SEEN_BY = "SELECT epoch FROM epochs WHERE switch = ? AND first_slot < ? AND end_slot > ?"
_ANOTHER_FOLDER = "set state_dir under [controller] to a folder that the controller may write"
_AFRESH = (
    "move it away and start the controller again: it then has no jobs, and sets the switches' pipelines anew, so that "
    "no old round can count again"
)
