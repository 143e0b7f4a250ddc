"""A job as text, so that it outlives the controller: everything but what only the running controller can know."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from p4reduce_contracts.jobs.answers import Count
from p4reduce_contracts.jobs.errors import InvalidRequestError
from p4reduce_contracts.wire import MAX_JOBS, MAX_RANKS, MAX_SLOTS, SECRET_BITS
from p4reduce_controller.jobs.hello import Address
from p4reduce_controller.jobs.model import Grant, Job, Member, check_job_lanes, check_name
from p4reduce_controller.jobs.slots import SlotRange
from p4reduce_runtime import checked
from p4reduce_runtime.checked import Check, T

_RUNNING_ONLY = ("last_seen", "waiting", "watching", "gone_at", "problem", "slot_wait")


def to_text(job: Job) -> str:
    """Write a job as JSON. The grant of a job that is not ACTIVE is left out: nobody has been told of it."""
    fields = asdict(job)
    fields["members"] = [
        {key: value for key, value in member.items() if key not in _RUNNING_ONLY}
        for member in fields["members"].values()
    ]
    if not job.active:
        fields["grant"] = None
    return json.dumps(fields)


def from_text(text: str) -> Job:
    """Read a job that `to_text` wrote; its members were last seen at 0. Raises ValueError that names the place."""
    job = checked.read(Job, checked.parse_json(text), "job", _JOB)
    try:
        check_name(job.name)
        check_job_lanes(job.name, job.world_size, job.lane_bits, job.lane_bound)
    except InvalidRequestError as error:
        raise ValueError(str(error)) from None
    if any(rank >= job.world_size for rank in job.members):
        raise ValueError(f"the job has {job.world_size} ranks and members {sorted(job.members)}")
    if job.active != (job.grant is not None):
        raise ValueError(f"job.active is {job.active}, and the job has {'a' if job.grant else 'no'} grant")
    if job.grant is not None:
        _check_grant(job, job.grant)
    return job


def _check_grant(job: Job, grant: Grant) -> None:
    if not len(grant.addresses) == len(grant.secrets) == job.world_size:
        raise ValueError(f"the job has {job.world_size} ranks, and its grant another number")
    if len(job.members) != job.world_size:
        raise ValueError(f"the job has {job.world_size} ranks and a grant, but only the members {sorted(job.members)}")
    if (grant.job_id, grant.name, grant.slots) != (job.id, job.name, job.slots):
        raise ValueError("job.grant has another id, name or slots than the job")


def _or_none(check: Check[T]) -> Check[T | None]:
    return lambda where, value: None if value is None else check(where, value)


def _bits(count: int) -> Check[int]:
    return checked.whole(0, (1 << count) - 1)


def _text(where: str, value: object) -> str:
    return "" if value == "" else checked.text(where, value)


def _member(where: str, value: object) -> Member:
    return checked.read(Member, {**checked.mapping(where, value), "last_seen": 0.0}, where, _MEMBER)


def _members(where: str, value: object) -> dict[int, Member]:
    members = checked.list_of(_member)(where, value)
    found = {member.rank: member for member in members}
    if len(found) != len(members):
        raise ValueError(f"{where} has a rank twice")
    return found


def _counts(where: str, value: object) -> dict[str, Count]:
    return {name: _COUNT(f"{where}.{name}", count) for name, count in checked.mapping(where, value).items()}


_COUNT = checked.table_of(Count, {"packets": checked.whole(0), "bytes": checked.whole(0)})
_SLOTS = checked.table_of(SlotRange, {"base": checked.whole(0, MAX_SLOTS), "count": checked.whole(1, MAX_SLOTS)})
_ADDRESS = checked.table_of(
    Address, {"ingress_port": checked.whole(0, 511), "mac": _bits(48), "ip": _bits(32), "udp_port": _bits(16)}
)
_MEMBER: dict[str, Check[Any]] = {
    "rank": checked.whole(0, MAX_RANKS - 1),
    "nonce": _bits(64),
    "run_id": _text,
    "address": _or_none(_ADDRESS),
}
_GRANT: dict[str, Check[Any]] = {
    "job_id": checked.whole(1, MAX_JOBS),
    "epoch": checked.whole(1, 0xFFFF),
    "slots": _SLOTS,
    "addresses": checked.list_of(_ADDRESS),
    "secrets": checked.list_of(_bits(SECRET_BITS)),
}
_JOB: dict[str, Check[Any]] = {
    "id": checked.whole(1, MAX_JOBS),
    "world_size": checked.whole(1, MAX_RANKS),
    "slots": _SLOTS,
    "members": _members,
    "grant": _or_none(checked.table_of(Grant, _GRANT)),
    "counted_from": _or_none(_counts),
    "last_reset": _text,
    "owner": _text,
    "problem": _text,
    "owner_lock": _text,
    "member_lock": _text,
}
