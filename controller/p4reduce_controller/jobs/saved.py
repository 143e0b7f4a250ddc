"""A job as text, so that it outlives the controller: everything but what only the running controller can know."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from p4reduce_contracts.jobs.answers import Count
from p4reduce_controller.jobs.hello import Address
from p4reduce_controller.jobs.model import Grant, Job, Member
from p4reduce_controller.jobs.slots import SlotRange

_RUNNING_ONLY = ("last_seen", "waiting", "watching", "gone_at", "problem")


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
    """Read a job that `to_text` wrote; its members were last seen at 0. Raises ValueError."""
    try:
        fields: dict[str, Any] = json.loads(text)
        grant = fields.pop("grant")
        counted_from = fields.pop("counted_from")
        members = [
            Member(**{**member, "address": _address(member["address"])}, last_seen=0.0)
            for member in fields.pop("members")
        ]
        return Job(
            **{**fields, "slots": SlotRange(**fields["slots"])},
            grant=None if grant is None else _grant(grant),
            counted_from=None
            if counted_from is None
            else {name: Count(**count) for name, count in counted_from.items()},
            members={member.rank: member for member in members},
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"this is no job: {error}") from error


def _grant(fields: dict[str, Any]) -> Grant:
    addresses = tuple(Address(**address) for address in fields["addresses"])
    told = {"slots": SlotRange(**fields["slots"]), "addresses": addresses, "secrets": tuple(fields["secrets"])}
    return Grant(**{**fields, **told})


def _address(fields: dict[str, Any] | None) -> Address | None:
    return None if fields is None else Address(**fields)
