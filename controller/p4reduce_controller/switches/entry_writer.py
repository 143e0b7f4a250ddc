"""Writes to the switch what the jobs need, through a P4Runtime client. Each method blocks until it answers.

`Pipeline.entries` returns the entries of a grant in the order in which they are written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from p4reduce_contracts.jobs.answers import Count
from p4reduce_contracts.wire.numbers import DROP_REASONS, MAX_JOBS
from p4reduce_controller.config import SwitchConfig
from p4reduce_controller.p4runtime.client import Client, Operation
from p4reduce_controller.registry.job import Grant
from p4reduce_controller.switches.entries import v1model
from p4reduce_controller.switches.mac_table import MacTable
from p4reduce_controller.switches.pipeline import Pipeline
from p4reduce_controller.switches.program_names import FLOOD_GROUP
from p4reduce_runtime.logs import event
from p4reduce_runtime.p4runtime.entries import DigestConfig, Entry, MeterConfig, MeterEntry, MulticastGroup, TableEntry
from p4reduce_runtime.p4runtime.errors import ReadError, WriteError

_log = logging.getLogger(__name__)

Held = TableEntry | MulticastGroup
JobCounters = Mapping[str, Mapping[int | None, Count]]

_OUR_GROUPS = (
    FLOOD_GROUP,
    *(v1model.group_number(job) for job in range(1, MAX_JOBS + 1)),
    *(v1model.parent_group_number(job) for job in range(1, MAX_JOBS + 1)),
)


class EntryWriter:
    """The controller's writes to one switch."""

    def __init__(self, client: Client, switch: SwitchConfig, pipeline: Pipeline, mac_table: MacTable) -> None:
        self.client = client
        self._switch = switch
        self._pipeline = pipeline
        self._names = pipeline.names
        self._mac_table = mac_table

    def warm_restart(self, era: int, grants: Iterable[Grant], draws: int) -> frozenset[int] | None:
        """Keep the entries of a switch just connected to, if its registers hold rounds of known epochs only.

        That is so when it has this pipeline with the era's number as cookie, and a mark of at most `draws` epochs
        (with more, the controller's state is an older copy). What belongs to none of `grants` is deleted.
        Returns the ids of the jobs whose entries are all there, or None: then the pipeline has to be set anew.
        """
        found = self._found(era, draws)
        if found is None:
            return None
        own: list[Held] = [*v1model.switch_address(self._switch, self._names)]
        own += [entry for entry in found if self._is_mark(entry)]
        own += self._mac_table.opening()
        own += self._mac_table.adopt(entry for entry in found if isinstance(entry, TableEntry))
        difference = compare(found, self._wanted(grants), own)
        admit = self._names.admit  # it goes first: what answers frames is deleted when none are admitted
        self.client.delete(*sorted(difference.delete, key=lambda entry: getattr(entry, "table", "") != admit))
        self.client.insert(*difference.insert)
        self._limit_hellos()
        self._ask_for_digests()
        return difference.kept

    def inspect(self, era: int, grants: Iterable[Grant], draws: int) -> frozenset[int]:
        """Return the ids of the jobs whose entries the switch holds as `warm_restart` would find them; write nothing.

        P4Runtime lets a controller that is not primary read.
        """
        return compare(self._found(era, draws) or (), self._wanted(grants), ()).kept

    def cold_start(self, era: int) -> None:
        """Set the pipeline, which zeroes registers and counters, and write the switch's own entries."""
        if self._has_pipeline():
            self._clear()
        elif self.client.get_pipeline() is not None:  # else BMv2 keeps its groups for ever
            self._delete_groups(list(_OUR_GROUPS))
        self.client.set_pipeline(self._pipeline.p4info, self._pipeline.device_config, cookie=era)
        mark = v1model.draws_mark(0, self._names)
        self.client.insert(*v1model.switch_address(self._switch, self._names), mark, *self._mac_table.opening())
        self._limit_hellos()
        self._ask_for_digests()

    def install(self, grant: Grant, draws: int) -> None:
        """Write a grant's entries, after the mark of `draws`, this grant's among them. After an error none remains."""
        entries = self._pipeline.entries(grant, self._switch)
        mark: tuple[Operation, Entry] = ("modify", v1model.draws_mark(draws, self._names))
        replies: list[tuple[Operation, Entry]] = [("insert", entry) for entry in entries.replies]
        try:
            self.client.write([mark, *replies])
            self.client.insert(*entries.admission)
        except WriteError:
            self._clear_job(grant.job_id)
            raise

    def remove(self, grant: Grant) -> None:
        """Delete a grant's entries."""
        entries = self._pipeline.entries(grant, self._switch)
        try:
            self.client.delete(*entries.admission)
            self.client.delete(*entries.replies)
        except WriteError:
            self._clear_job(grant.job_id)

    def learn(self, mac_learn_events: Iterable[tuple[int, ...]]) -> None:
        """Write the MAC addresses that the switch reported."""
        updates = self._mac_table.learn(mac_learn_events)
        if updates:
            self.client.write(updates)

    def job_counters(self, job_id: int | None = None) -> JobCounters:
        """The counters of one job id, or of every one, since the pipeline was set: by name and id."""
        return {name: self._cells(counter, job_id) for name, counter in self._names.job_counters.items()}

    def drop_counters(self) -> dict[str, Count]:
        """Frames dropped since the pipeline was set, by reason."""
        cells = self._cells(self._names.drops)
        return {reason: cells.get(index, Count()) for index, reason in DROP_REASONS.items()}

    def _cells(self, counter: str, index: int | None = None) -> dict[int | None, Count]:
        return {cell.index: Count(cell.packets, cell.bytes) for cell in self.client.read_counter(counter, index)}

    def _has_pipeline(self, era: int | None = None) -> bool:
        """Return whether the switch has this program, set in `era` if that is given."""
        held = self.client.get_pipeline()
        return (
            held is not None
            and era in (None, held.cookie)
            and held.p4info == self._pipeline.p4info
            and held.device_config == self._pipeline.device_config
        )

    def _is_mark(self, entry: Held) -> bool:
        mark = v1model.draws_mark(0, self._names)
        return isinstance(entry, TableEntry) and (entry.table, entry.match) == (mark.table, mark.match)

    def _found(self, era: int, draws: int) -> list[Held] | None:
        """Every entry and group, or None: the registers may hold rounds of other epochs than those known here."""
        if not self._has_pipeline(era):
            return None
        try:
            found: list[Held] = [entry for table in self._names.tables for entry in self.client.read_table(table)]
            found += [group for group in self.client.read_groups() if group.group_id in _OUR_GROUPS]
        except ReadError:  # some targets cannot list their groups
            return None
        marks = [entry.params["secret"] for entry in found if isinstance(entry, TableEntry) and self._is_mark(entry)]
        if not marks or marks[0] > draws:
            event(
                _log,
                logging.WARNING,
                "switch ahead of the controller",
                switch=self._switch.name,
                drawn=draws,
                on_switch=marks[0] if marks else "no number",
                advice="the controller's state was put back from a copy, or is of an earlier version: the pipeline is "
                "set anew, and the jobs there form again",
            )
            return None
        return found

    def _wanted(self, grants: Iterable[Grant]) -> dict[int, list[Held]]:
        entries = {grant.job_id: self._pipeline.entries(grant, self._switch) for grant in grants}
        return {job_id: [*replies, *admission] for job_id, (replies, admission) in entries.items()}

    def _clear(self) -> None:
        for table in self._names.tables:
            self.client.delete(*self.client.read_table(table))
        self._delete_groups(list(_OUR_GROUPS))

    def _clear_job(self, job_id: int) -> None:
        for table in (self._names.admit, self._names.job_member):
            entries = [entry for entry in self.client.read_table(table) if entry.match["job"] == job_id]
            if entries:
                self.client.delete(*entries)
        self._delete_groups([v1model.group_number(job_id), v1model.parent_group_number(job_id)])

    def _delete_groups(self, numbers: list[int]) -> None:
        try:
            there = {group.group_id for group in self.client.read_groups()}
        except ReadError:  # some targets cannot list their groups
            there = set(numbers)
        groups = [MulticastGroup(number) for number in numbers if number in there]
        try:
            if groups:
                self.client.delete(*groups)
        except WriteError as error:
            if not error.only("NOT_FOUND"):
                raise

    def _limit_hellos(self) -> None:
        """Set how many HELLOs of each port go to the controller; those beyond are dropped, with the reason RATE."""
        rate, burst = self._switch.hellos_a_second, self._switch.hello_burst
        limit = MeterConfig(rate, burst, rate, burst)
        cells = [
            MeterEntry(self._names.hello_rate, port, limit)
            for meter in self._pipeline.p4info.meters
            if meter.preamble.name == self._names.hello_rate
            for port in range(meter.size)
        ]
        if cells:  # other programs may have no such meter
            self.client.write([("modify", cell) for cell in cells])

    def _ask_for_digests(self) -> None:
        """Ask the switch to report new MAC addresses; one that already does so refuses, which is no error."""
        if not self._mac_table.learns:
            return
        try:
            self.client.insert(DigestConfig(self._names.mac_learn, max_list_size=16, max_timeout_ns=100_000_000))
        except WriteError as error:
            if not error.only("ALREADY_EXISTS"):
                raise


@dataclass(frozen=True)
class Difference:
    """The ids of the jobs that the switch holds whole, the entries to delete, and those that are missing."""

    kept: frozenset[int]
    delete: tuple[Held, ...]
    insert: tuple[Held, ...]


def compare(found: Iterable[Held], jobs: Mapping[int, Iterable[Held]], own: Iterable[Held]) -> Difference:
    """Compare the entries and groups found on a switch with those of each of `jobs`, by id, and the switch's `own`.

    A job is kept if every entry of it is there as it should be. What belongs to no kept job and is not `own` has to go.
    """
    there = {_name(entry): entry for entry in found}
    desired: dict[str, Held] = {}
    kept = set()
    for job_id, entries in jobs.items():
        of_job = {_name(entry): entry for entry in entries}
        if all(_is_equal(there.get(name), entry) for name, entry in of_job.items()):
            kept.add(job_id)
            desired |= of_job
    missing = {_name(entry): entry for entry in own}
    for name, entry in missing.items():
        if _is_equal(there.get(name), entry):
            desired[name] = entry
    return Difference(
        frozenset(kept),
        tuple(entry for name, entry in there.items() if name not in desired),
        tuple(entry for name, entry in missing.items() if name not in desired),
    )


def _name(entry: Held) -> str:
    """Return the key by which a switch tells entries apart."""
    if isinstance(entry, MulticastGroup):
        return f"group {entry.group_id}"
    return f"{entry.table} {sorted(entry.match.items())} {entry.priority}"


def _is_equal(found: Held | None, desired: Held) -> bool:
    if isinstance(found, MulticastGroup) and isinstance(desired, MulticastGroup):
        return sorted(found.replicas) == sorted(desired.replicas)
    if isinstance(found, TableEntry) and isinstance(desired, TableEntry):
        return (found.action, found.params) == (desired.action, desired.params)
    return False
