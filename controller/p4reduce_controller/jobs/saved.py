"""A job as JSON text: what a later run of the controller needs of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from p4reduce_contracts.jobs.errors import InvalidRequestError
from p4reduce_contracts.wire import SECRET_BITS
from p4reduce_controller.jobs.model import Grant, Job, Member, check_job_lanes, check_name
from p4reduce_runtime import settings

_RUNNING_ONLY = ("last_seen", "waiting", "watching", "disconnected_at", "problem", "slot_wait")


def to_text(job: Job) -> str:
    """Write a job as JSON. The grant of a job that is not ACTIVE is left out: no rank has received it."""
    fields = asdict(job)
    fields["members"] = [
        {key: value for key, value in member.items() if key not in _RUNNING_ONLY}
        for member in fields["members"].values()
    ]
    del fields["empty_since"]
    if not job.active:
        fields["grant"] = None
    return json.dumps(fields)


def from_text(text: str) -> Job:
    """Read a job that `to_text` wrote; its members were last seen at 0. Raises ValueError that names the place."""
    fields = settings.convert(settings.parse_json(text), dict[str, Any], "job")
    members = settings.convert(fields.pop("members", []), list[Member], "job.members")
    job = settings.convert(fields, Job, "job")
    job.members.update((member.rank, member) for member in members)
    if len(job.members) != len(members):
        raise ValueError("job.members has a rank twice")
    try:
        check_name(job.name)
        check_job_lanes(job.name, job.world_size, job.lane_bits, job.lane_bound)
    except InvalidRequestError as error:
        raise ValueError(str(error)) from None
    if any(member.nonce >> 64 for member in members):
        raise ValueError("a nonce in job.members has more than 64 bits")
    if any(rank >= job.world_size for rank in job.members):
        raise ValueError(f"the job has {job.world_size} ranks and members {sorted(job.members)}")
    if job.active != (job.grant is not None):
        raise ValueError(f"job.active is {job.active}, and the job has {'a' if job.grant else 'no'} grant")
    if job.grant is not None:
        _check_grant(job, job.grant)
    return job


def _check_grant(job: Job, grant: Grant) -> None:
    if any(secret >> SECRET_BITS for secret in grant.secrets):
        raise ValueError(f"a secret of job.grant has more than {SECRET_BITS} bits")
    if not len(grant.addresses) == len(grant.secrets) == job.world_size:
        raise ValueError(f"the job has {job.world_size} ranks, and its grant another number")
    if len(job.members) != job.world_size:
        raise ValueError(f"the job has {job.world_size} ranks and a grant, but only the members {sorted(job.members)}")
    if (grant.job_id, grant.name, grant.slots) != (job.id, job.name, job.slots):
        raise ValueError("job.grant has another id, name or slots than the job")
