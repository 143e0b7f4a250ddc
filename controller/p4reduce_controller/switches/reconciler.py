"""Reconciles a switch with the registry, and keeps the connection to it.

The registry has the desired entries, the reconciler the actual ones, and it writes the difference: first all
deletes, since slots may pass from one job to another, then the inserts. P4Runtime calls block, so they run one
after the other on a thread of their own; the rest on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from p4reduce_contracts.jobs.answers import Count
from p4reduce_contracts.jobs.errors import StoreError, SwitchAwayError
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_controller.registry.hello import parse_hello
from p4reduce_controller.registry.job import LAST_EPOCH, Grant, Job
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.switches.connection import State, SwitchConnection
from p4reduce_controller.switches.entry_writer import EntryWriter, JobCounters
from p4reduce_runtime.logs import Field, event
from p4reduce_runtime.p4runtime.errors import (
    NotPrimaryError,
    P4RuntimeError,
    ReadError,
    SwitchUnreachableError,
    SwitchWithoutTlsError,
    WriteError,
)

_log = logging.getLogger(__name__)

RESTARTED = "the switch restarted"
UNKNOWN = "the switch has a program or epochs that the controller's state does not know"
CHANGED = "another controller changed the job's entries on the switch"
LOST = "the controller lost the switch for more than 1 s"
"""The reasons for which jobs are reset."""
_LOST_AFTER_S = 1.0  # a connection made again by then, to a switch that kept its entries, resets no job
_ANSWER_LIMIT_S = 2.0  # of the answers to a call of the job service: well below JobClient's 5 s
_ENOUGH_EPOCHS = LAST_EPOCH // 2
_EPOCHS_A_WARNING = 1000
_PROBE_LIMIT_S = 3.0
_LINK_HELLO_S = 1.0

T = TypeVar("T")


class Notifier:
    """`notify` wakes all coroutines that are in `wait`. Check the condition, then `wait`, and check again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiting coroutines."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        await self._event.wait()


class EraStore(Protocol):
    """The part of service.store.Store that is used here; see there. Each method raises StoreError."""

    def era(self, switch: str) -> int: ...
    def begin_era(self, switch: str) -> int: ...
    def count_draws(self, switch: str) -> int: ...
    def count_epochs(self, switch: str) -> int: ...


@dataclass(frozen=True)
class SwitchCounters:
    """What a switch has counted of each job, by the job's name and the counter's, and its drops by reason.

    A job's counts begin when it was made, or later when the switch was lost.
    """

    jobs: Mapping[str, Mapping[str, Count]]
    drops: Mapping[str, Count]


class SwitchReconciler:
    """The controller's side of the switch `name` at `address`. Call its methods on the event loop only."""

    def __init__(
        self,
        *,
        entry_writer: EntryWriter,
        registry: Registry,
        store: EraStore,
        clock: Callable[[], float],
        notifier: Notifier,
        address: str,
        name: str = ONLY_SWITCH,
    ) -> None:
        self.name = name
        self._entry_writer = entry_writer
        self._registry = registry
        self._store = store
        self._clock = clock
        self._notifier = notifier
        self._address = address
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="p4runtime")
        self.connection = SwitchConnection()
        self._installed: dict[int, Grant] = {}
        self._synced_version = -1
        self._mac_learn_events: list[tuple[int, ...]] = []
        self._next_hello = 0.0
        self._reset_timer: asyncio.TimerHandle | None = None
        """Runs since the switch is away, until its entries are known; also after it has reset the jobs."""
        self._next_warning = _ENOUGH_EPOCHS
        registry.can_use(name, usable=False)

    async def connect(self, timeout_s: float) -> None:
        """Connect for the first time, trying until `timeout_s` have passed. Raises P4RuntimeError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            try:
                await self._open()
            except SwitchWithoutTlsError:
                raise
            except SwitchUnreachableError as error:
                if self.connection.next_try > deadline:
                    raise SwitchUnreachableError(
                        f"no P4Runtime switch at {self._address} for {timeout_s:g} s: start one with "
                        "`p4reduce switch run`, or name another with --p4runtime"
                    ) from error
                await asyncio.sleep(self.connection.next_try - loop.time())
            else:
                if self.connection.reason is not None:
                    raise NotPrimaryError(f"not primary for the switch at {self._address}: {self.connection.reason}")
                return

    async def run(self) -> None:
        """Reconcile until cancelled."""
        steps: Mapping[State, Callable[[], Awaitable[None]]] = {
            State.DISCONNECTED: self._while_disconnected,
            State.BACKUP: self._while_backup,
            State.PRIMARY: self._while_primary,
            State.LOST: self._while_lost,
        }
        while True:
            await steps[self.connection.state]()

    async def _while_disconnected(self) -> None:
        if self._is_past(self.connection.next_try):
            await self._try_to_open()
        else:
            await self._wait(self.connection.next_try)

    async def _while_backup(self) -> None:
        if self._is_past(self.connection.next_try):
            await self._try_to_open()
        elif self._is_past(self.connection.next_probe):
            await self._probe()
        else:
            await self._wait(min(self.connection.next_probe, self.connection.next_try))

    async def _while_primary(self) -> None:
        if self._is_past(self.connection.next_probe):
            await self._probe()
        elif self._has_work():
            await self._work()
        elif first := self._registry.links.first_hellos(self.name):
            await self._send(first)
        elif not (hellos := self._registry.links.hellos(self.name)):
            await self._wait(self.connection.next_probe)
        elif not self._is_past(self._next_hello):
            await self._wait(min(self.connection.next_probe, self._next_hello))
        else:
            self._next_hello = asyncio.get_running_loop().time() + _LINK_HELLO_S
            if await self._send(hellos):
                self._registry.link_hellos_sent(self.name)

    async def _while_lost(self) -> None:
        """Mark the switch's entries as unknown. If that lasts, the jobs are reset."""
        self._event(logging.WARNING, "switch lost")
        self.connection.step_ended()
        self._installed.clear()
        self._mac_learn_events.clear()
        self._start_reset_timer()

    async def _try_to_open(self) -> None:
        try:
            await self._open()
        except (P4RuntimeError, StoreError) as error:
            self._start_reset_timer()
            self._event(
                logging.WARNING,
                "switch not reached",
                cause=str(error),
                next_try_s=round(max(0.0, self.connection.next_try - asyncio.get_running_loop().time()), 1),
            )

    @staticmethod
    def _is_past(time_s: float) -> bool:
        return asyncio.get_running_loop().time() >= time_s

    def _event(self, level: int, name: str, **fields: Field) -> None:
        event(_log, level, name, switch=self._address, **fields)

    async def _wait(self, until: float) -> None:
        """Wait for a change, at most until then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._notifier.wait()

    async def _send(self, frames: list[tuple[int, bytes]]) -> bool:
        """Send HELLOs to other switches out of ports of the switch. Return whether all were."""
        client = self._entry_writer.client
        try:
            for port, frame in frames:
                await self._on_thread(client.packet_out, frame, port)
        except P4RuntimeError as error:
            self._event(logging.WARNING, "HELLO not sent", cause=str(error))
            return False
        return True

    def _has_work(self) -> bool:
        return bool(self._mac_learn_events) or self._synced_version != self._registry.version

    async def close(self) -> None:
        """End the connection and its thread. Entries stay: to have none, remove the jobs and `wait_synced` first."""
        self.connection.close()
        self._stop_reset_timer()
        client = self._entry_writer.client
        client.on_packet_in = client.on_digest = client.on_lost = client.on_primary = None
        await asyncio.get_running_loop().run_in_executor(self._thread, client.close)
        self._thread.shutdown(wait=False)

    def unavailable_reason(self) -> str | None:
        """Return why the switch cannot be used now, None if it can."""
        if self.connection.state is State.PRIMARY:
            return None
        which = f"{self._named('its switch')} at {self._address}"
        if self.connection.state is State.BACKUP:
            return f"the controller cannot change {which}: {self.connection.reason}"
        return f"the controller has no connection to {which}"

    def _named(self, text: str) -> str:
        """Return a text about the switch with its name, where there are several."""
        return text if self.name == ONLY_SWITCH else re.sub(r"\b(the|its) switch\b", f"switch {self.name}", text)

    async def wait_synced(self, limit_s: float = _ANSWER_LIMIT_S) -> None:
        """Return when the switch holds the registry's present grants, is not connected, or after `limit_s`."""
        version = self._registry.version
        try:
            async with asyncio.timeout(limit_s):
                while self.unavailable_reason() is None and self._synced_version < version:
                    await self._notifier.wait()
        except TimeoutError:
            self._event(logging.WARNING, "switch slow", waited_s=limit_s)

    async def counters(self, jobs: Iterable[Job]) -> SwitchCounters:
        """Read the counters of those of `jobs` that have had entries here, and the drops. Raises SwitchAwayError."""
        if (reason := self.unavailable_reason()) is not None:
            raise SwitchAwayError(f"{reason}; it tries again by itself")
        try:
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                cells = await self._on_thread(self._entry_writer.job_counters)
                drops = await self._on_thread(self._entry_writer.drop_counters)
        except TimeoutError:
            raise SwitchAwayError(
                f"the switch at {self._address} gave no answer within {_ANSWER_LIMIT_S:g} s"
            ) from None
        except P4RuntimeError as error:
            raise SwitchAwayError(f"the switch at {self._address} did not answer: {error}") from error
        counts = {job.name: self._since(job, _of_job(cells, job.id)) for job in jobs if self.name in job.counted_from}
        return SwitchCounters(counts, drops)

    async def _on_thread(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bring the client's callbacks, which come on its own threads, to the event loop."""
        client = self._entry_writer.client
        client.on_packet_in = lambda payload, metadata: _post(loop, self._packet_in, payload, metadata)
        client.on_digest = lambda name, values: _post(loop, self._digest, values)
        number = self.connection.number
        client.on_lost = lambda _: _post(loop, self._stream_lost, number)
        client.on_primary = lambda primary: None if primary else _post(loop, self._demoted, number)

    def _packet_in(self, payload: bytes, metadata: dict[str, int]) -> None:
        hello = parse_hello(metadata.get("ingress_port", -1), payload)
        if hello is not None:
            before = self._registry.version
            self._registry.hello(hello, self._clock(), self.name)
            if self._registry.version != before:
                self._notifier.notify()

    def _digest(self, values: list[tuple[int, ...]]) -> None:
        self._mac_learn_events += values
        self._notifier.notify()

    def _stream_lost(self, number: int) -> None:
        if number == self.connection.number:
            self.connection.lost()
            self._notifier.notify()

    def _demoted(self, number: int) -> None:
        """Another controller has become primary. The entries count as unchanged until they are read."""
        if number != self.connection.number or not self.connection.demoted(asyncio.get_running_loop().time()):
            return
        self._registry.links.primary(self.name, is_primary=False)
        self._registry.can_use(self.name, usable=False)
        self._event(
            logging.WARNING,
            "switch taken by another controller",
            back_in_s=round(self.connection.election_backoff_s, 1),
            advice="do two of them control one switch?" if self.connection.election_backoff_s else "",
        )
        self._notifier.notify()

    def _start_reset_timer(self) -> None:
        """Reset the jobs after `_LOST_AFTER_S`, unless the timer runs or the switch is found to hold their entries."""
        if self._reset_timer is None:
            self._reset_timer = asyncio.get_running_loop().call_later(_LOST_AFTER_S, self._reset_jobs)

    def _reset_jobs(self) -> None:
        """Reset the jobs: the switch has been away for too long."""
        self._registry.switch_lost(self._named(LOST), switch=self.name)
        self._registry.can_use(self.name, usable=False)
        self._notifier.notify()

    def _stop_reset_timer(self) -> None:
        if self._reset_timer is not None:
            self._reset_timer.cancel()
            self._reset_timer = None

    async def _open(self) -> None:
        """Connect, and keep the switch's entries or set its pipeline; where another controller is primary, only read.

        Events of earlier connections are ignored from here on.
        """
        client, loop = self._entry_writer.client, asyncio.get_running_loop()
        client.on_packet_in = client.on_digest = client.on_lost = client.on_primary = None
        self.connection.connect(loop.time())

        def connect() -> tuple[str | None, frozenset[int] | None, str]:
            client.close()
            self._listen(loop)
            client.connect(require_primary=False)
            if (reason := client.why_not_primary()) is not None:
                return reason, self._entry_writer.inspect(era, active.values(), draws), CHANGED
            kept = self._entry_writer.warm_restart(era, active.values(), draws)
            if kept is not None:
                return None, kept, CHANGED
            return None, None, RESTARTED if client.get_pipeline() is None else UNKNOWN

        try:
            era, draws = self._store.era(self.name), self._store.count_draws(self.name)
            active = {
                job.id: job.grants[self.name] for job in self._registry.jobs() if job.active and self.name in job.grants
            }
            reason, kept, cause = await self._on_thread(connect)
            if kept is None:
                await self._cold_start(cause)
            else:
                self._stop_reset_timer()
                self._installed = {job_id: active[job_id] for job_id in kept}
                self._registry.switch_lost(self._named(cause), kept, self.name)
        except BaseException:
            self.connection.failed(loop.time())
            raise
        self.connection.opened(loop.time(), reason)
        self._registry.links.primary(self.name, is_primary=self.connection.reason is None)
        self._registry.can_use(self.name, usable=self.connection.reason is None)
        if self.connection.reason is not None:
            self._event(
                logging.WARNING,
                "switch has another primary",
                cause=self.connection.reason,
                jobs=len(self._installed),
                next_try_s=round(self.connection.next_try - loop.time(), 1),
            )
        else:
            self._event(
                logging.INFO,
                "switch connected",
                pipeline="set afresh" if kept is None else "kept",
                jobs=len(self._installed),
            )
        self._notifier.notify()

    async def _cold_start(self, cause: str) -> None:
        """Begin an era: the switch's registers are zeroed, no epoch counts as used, and jobs are reset for `cause`."""
        era = self._store.begin_era(self.name)
        self._stop_reset_timer()
        self._installed.clear()
        self._registry.switch_lost(self._named(cause), switch=self.name)
        await self._on_thread(self._entry_writer.cold_start, era)
        self._registry.links.lost(self.name)  # its neighbours' HELLOs may have come before it had a pipeline

    async def _probe(self) -> None:
        """Check that the switch answers: one that hangs, or a host that vanished, does not end the stream."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_PROBE_LIMIT_S):
                await self._on_thread(self._entry_writer.client.capabilities)
        except (TimeoutError, SwitchUnreachableError) as error:
            cause = str(error) or "no answer to a probe"
            self._event(logging.WARNING, "switch silent", cause=cause)
            self.connection.probe_failed(loop.time())
            return
        except P4RuntimeError:
            pass  # it does not know the call, but it answers
        self.connection.probe_answered(loop.time())

    async def _work(self) -> None:
        version = self._registry.version
        try:
            await self._remove_stale()
            await self._clear_registers()
            await self._install_missing()
            await self._learn()
        except P4RuntimeError as error:
            self._event(logging.WARNING, "switch write failed", cause=str(error))
            self.connection.lost()
            return
        self._synced_version = version
        self._notifier.notify()

    async def _remove_stale(self) -> None:
        desired = self._registry.grants(self.name)
        for job_id, grant in list(self._installed.items()):
            if desired.get(job_id) != grant:
                await self._on_thread(self._entry_writer.remove, grant)
                del self._installed[job_id]

    async def _clear_registers(self) -> None:
        """Begin another era while no job is on the switch, well before all epochs are used."""
        try:
            used = self._store.count_epochs(self.name)
            if used < _ENOUGH_EPOCHS:
                self._next_warning = _ENOUGH_EPOCHS
            elif not self._installed and not self._registry.grants(self.name):
                self._event(logging.INFO, "registers cleared", used_epochs=used)
                await self._cold_start("")  # there is no job
            elif used >= self._next_warning:
                self._next_warning = used + _EPOCHS_A_WARNING
                event(
                    _log,
                    logging.WARNING,
                    "epochs run short",
                    used=used,
                    of=LAST_EPOCH,
                    advice="let all jobs end at one time, then the switch's registers are cleared",
                )
        except StoreError as error:  # tried again when there is no job
            self._event(logging.WARNING, "registers not cleared", cause=str(error))

    async def _install_missing(self) -> None:
        for job_id, grant in self._registry.grants(self.name).items():
            if job_id in self._installed:
                continue
            await self._count_from_now(grant)
            try:
                draws = self._store.count_draws(self.name)
                await self._on_thread(self._entry_writer.install, grant, draws)
            except (WriteError, StoreError) as error:
                refused = "the switch refused" if isinstance(error, WriteError) else "the controller cannot write"
                self._registry.install_failed(grant, f"{refused} the entries of job {grant.name}: {error}")
                continue
            self._installed[job_id] = grant
            self._registry.installed(grant, self._clock())
            self._notifier.notify()

    async def _count_from_now(self, grant: Grant) -> None:
        """Note the job's counters, unless that was done; the job has had no entries yet."""
        job = self._registry.holder(grant)
        if job is None or self.name in job.counted_from:
            return
        try:
            counts = _of_job(await self._on_thread(self._entry_writer.job_counters, grant.job_id), grant.job_id)
        except ReadError as error:
            event(_log, logging.WARNING, "stats begin with old counts", job=grant.name, cause=str(error))
            counts = {}
        self._registry.count_from(grant, counts)

    async def _learn(self) -> None:
        mac_learn_events, self._mac_learn_events = self._mac_learn_events, []
        if mac_learn_events:
            try:
                await self._on_thread(self._entry_writer.learn, mac_learn_events)
            except WriteError as error:
                event(_log, logging.WARNING, "MAC addresses not noted", cause=str(error))

    def _since(self, job: Job, counts: dict[str, Count]) -> dict[str, Count]:
        """Return `counts` since the job was made; nothing counts before its first entries here."""
        since = job.counted_from.get(self.name, counts)
        return {name: count - since.get(name, Count()) for name, count in counts.items()}


class Switches:
    """The reconcilers by the names of their switches."""

    def __init__(self, reconcilers: Iterable[SwitchReconciler]) -> None:
        self.by_name = {reconciler.name: reconciler for reconciler in reconcilers}

    def unavailable_reason(self) -> str | None:
        """Return why switches cannot be used now, None if all can."""
        reasons = (reconciler.unavailable_reason() for reconciler in self.by_name.values())
        return "; ".join(filter(None, reasons)) or None

    async def wait_synced(self) -> None:
        """Return when every switch holds the registry's present grants, is not connected, or takes too long."""
        await asyncio.gather(*(reconciler.wait_synced() for reconciler in self.by_name.values()))

    async def counters(self, jobs: Collection[Job]) -> dict[str, SwitchCounters | SwitchAwayError]:
        """Read the counters of each switch, by its name: or why they could not be read."""

        async def read(reconciler: SwitchReconciler) -> SwitchCounters | SwitchAwayError:
            try:
                return await reconciler.counters(jobs)
            except SwitchAwayError as error:
                return error

        found = await asyncio.gather(*map(read, self.by_name.values()))
        return dict(zip(self.by_name, found, strict=True))

    async def close(self) -> None:
        """End the connections; entries stay."""
        await asyncio.gather(*(reconciler.close() for reconciler in self.by_name.values()))


def _of_job(cells: JobCounters, job_id: int) -> dict[str, Count]:
    return {name: by_id.get(job_id, Count()) for name, by_id in cells.items()}


def _post(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Call `function` on the loop, unless that has ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, *arguments)
