"""A job as JSON text: what a later run of the controller needs of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from p4reduce_contracts.jobs.errors import InvalidRequestError
from p4reduce_contracts.wire.numbers import MAX_SLOTS, SECRET_BITS
from p4reduce_controller.registry.job import Job, Member, check_name
from p4reduce_runtime import settings

_RUNNING_ONLY = ("last_seen", "waiting", "watching", "disconnected_at", "problem", "slot_wait")


def to_text(job: Job) -> str:
    """Write a job as JSON. The grants of a job that is not ACTIVE are left out: no rank has received them."""
    fields = msgspec.to_builtins(job)  # without fields that a job read from a file had no value for
    fields["members"] = [
        {key: value for key, value in member.items() if key not in _RUNNING_ONLY}
        for member in fields["members"].values()
    ]
    for name in ("empty_since", "installed"):
        fields.pop(name, None)
    if not job.active:
        fields["grants"] = {}
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
    except InvalidRequestError as error:
        raise ValueError(str(error)) from None
    if any(member.nonce >> 64 for member in members):
        raise ValueError("a nonce in job.members has more than 64 bits")
    if any(rank >= job.world_size for rank in job.members):
        raise ValueError(f"the job has {job.world_size} ranks and members {sorted(job.members)}")
    if job.active != bool(job.grants):
        raise ValueError(f"job.active is {job.active}, and the job has {len(job.grants)} grants")
    if job.active:
        _check_grants(job)
        job.installed.update(job.grants)
    return job


def _check_grants(job: Job) -> None:
    """Raise ValueError unless each rank's levels lead to one root that has all ranks, or to several side by side."""
    if len(job.members) != job.world_size:
        raise ValueError(f"the job has {job.world_size} ranks and grants, but only the members {sorted(job.members)}")
    root, *others = job.grants.values()
    for name, grant in job.grants.items():
        if (grant.switch, grant.job_id, grant.name, grant.slots) != (name, job.id, job.name, job.slots):
            raise ValueError(f"the grant of job.grants[{name}] has another switch, id, name or slots than the job")
        if (grant.epoch, grant.first_round) != (root.epoch, root.first_round):
            raise ValueError(f"job.grants[{name}] has another epoch or first round than {root.switch}'s")
        secrets = [child.secret for child in grant.children] + [grant.parent.secret if grant.parent is not None else 0]
        if any(secret >> SECRET_BITS for secret in secrets):
            raise ValueError(f"a secret of job.grants[{name}] has more than {SECRET_BITS} bits")
        for child in grant.children:
            if child.switch and (child.switch not in job.grants or job.grants[child.switch].level.parent != name):
                raise ValueError(f"the child {child.switch} of job.grants[{name}] is not below it")
            below = job.grants[child.switch].level.ranks if child.switch else child.ranks[:1]
            if child.ranks != below:
                raise ValueError(f"a child of job.grants[{name}] has other ranks than are behind it")
    several = job.is_side_by_side
    if not several and (root.parent is not None or any(grant.parent is None for grant in others)):
        raise ValueError("not the first of job.grants alone is a root, and not each of them")
    if len(job.grants) * job.slots.count > MAX_SLOTS and several:
        raise ValueError(f"the job has {job.slots.count} slots of each of {len(job.grants)} switches")
    for grants in ([grant] for grant in job.grants.values()) if several else (job.grants.values(),):
        ranks = [rank for grant in grants for child in grant.children if not child.switch for rank in child.ranks]
        if sorted(ranks) != list(range(job.world_size)) or root.level.ranks != tuple(range(job.world_size)):
            raise ValueError(f"the job has {job.world_size} ranks, and its grants others")
    for name, grant in job.grants.items():
        for child in grant.children:
            if not child.switch and name not in job.members[child.ranks[0]].addresses:
                raise ValueError(f"rank {child.ranks[0]} is a child of switch {name!r}, and has no address there")
