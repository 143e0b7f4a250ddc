"""Limits of one owner on the controller and the switch.

An owner is the name in a certificate, or without TLS a host: see `security.peer_owner`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from p4reduce_contracts.jobs.errors import QuotaExceededError
from p4reduce_controller.config import QuotaConfig
from p4reduce_controller.jobs.model import Job

_REMEMBERED = 4096
_MINUTE_S = 60.0


class Rate:
    """A token bucket of so many events a minute for each owner."""

    def __init__(self, a_minute: int) -> None:
        self._most = a_minute
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # of each owner, and when that was

    def wait_s(self, owner: str, now: float) -> float:
        """Return the seconds until `owner` may have another one; 0 if now."""
        return max(0.0, (1.0 - self._now_left(owner, now)) * _MINUTE_S / self._most)

    def spend(self, owner: str, now: float) -> None:
        """Count one. The owner whose last call is oldest is dropped first."""
        self._left[owner] = (self._now_left(owner, now) - 1.0, now)
        self._left.move_to_end(owner)
        while len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)

    def _now_left(self, owner: str, now: float) -> float:
        left, then = self._left.get(owner, (float(self._most), now))
        return min(float(self._most), left + (now - then) * self._most / _MINUTE_S)


class Quotas:
    """The limits under [quotas], and what each owner has used of them."""

    def __init__(self, config: QuotaConfig) -> None:
        self._config = config
        self._joins = Rate(config.joins_a_minute)
        self._leases = Rate(config.leases_a_minute)

    def check_create(self, owner: str, slots: int, jobs: Iterable[Job]) -> None:
        """Raise QuotaExceededError unless `owner`, with its part of `jobs`, may have another one with `slots`."""
        theirs = [job for job in jobs if job.owner == owner]
        if len(theirs) >= self._config.jobs:
            raise QuotaExceededError(
                f"{owner} has {len(theirs)} jobs, the most that one owner may have (quotas.jobs); remove one"
            )
        held = sum(job.slots.count for job in theirs)
        if self._config.slots and held + slots > self._config.slots:
            raise QuotaExceededError(
                f"{owner} has {held} slots and asks for {slots}; one owner may have {self._config.slots} (quotas.slots)"
            )

    def count_join(self, owner: str, now: float) -> None:
        """Raise QuotaExceededError, which says how long to wait, unless `owner` may join a job now."""
        wait_s = self._joins.wait_s(owner, now)
        if wait_s:
            raise QuotaExceededError(
                f"{owner} joined {self._config.joins_a_minute} times in a minute, the most that is allowed "
                f"(quotas.joins_a_minute); again in {wait_s:.1f} s"
            )
        self._joins.spend(owner, now)

    def lease_wait_s(self, owner: str, now: float) -> float:
        """Return the seconds until a job of `owner` may have another lease; 0 if now, and then it counts."""
        wait_s = self._leases.wait_s(owner, now)
        if not wait_s:
            self._leases.spend(owner, now)
        return wait_s
