"""The members of a process group that changes them: their handles, and their order.

A handle is the text by which the others know a group of one process until its next reconfigure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import torch.distributed as dist

from p4reduce.launch.processes import this_process
from p4reduce.pytorch.backend.options import BACKEND

_c10d: Any = dist  # whose stubs do not have its stores
_FIELDS: Final = 4


class Handle(NamedTuple):
    """The handle of a rank; sorted, ranks of groups before come first, and keep their order."""

    is_new: bool
    """Whether it has not been a member of a group yet."""
    rank: int
    token: str
    """A number drawn for the time until the next reconfigure."""
    process: str
    """Its process, as `this_process` names it."""

    @classmethod
    def of_this_process(cls, rank: int, token: str, *, is_new: bool) -> Handle:
        return cls(is_new, rank, token, this_process())

    def __str__(self) -> str:
        return f"{BACKEND}:{'new' if self.is_new else 'member'}:{self.rank}:{self.token}:{self.process}"

    @classmethod
    def parse(cls, text: str) -> Handle:
        """Return the handle of a text; DistBackendError for what is none."""
        backend, *fields = text.split(":", _FIELDS)
        if backend != BACKEND or len(fields) != _FIELDS or not fields[1].isdecimal():
            raise _c10d.DistBackendError(f"{text!r} is no reconfigure handle of the backend {BACKEND}")
        return cls(fields[0] == "new", int(fields[1]), fields[2], fields[3])


def ordered(texts: Collection[str], own: Handle) -> list[Handle]:
    """Return the members by their new ranks: a list's order, or of a set one that keeps the order of old ranks.

    Raises DistBackendError where a handle is none, or there twice, or `own` is not among them.
    """
    members = [Handle.parse(text) for text in texts]
    if len(set(members)) < len(members):
        raise _c10d.DistBackendError("a reconfigure handle is there twice")
    if own not in members:
        text = "the handle of this group is not among those given: get it anew after each reconfigure"
        raise _c10d.DistBackendError(text)
    return members if isinstance(texts, list | tuple) else sorted(members)


def tell(store: Any, members: list[Handle]) -> Any:
    """Write whose processes the members are, for `Told.look`; return the store."""
    store.set("all", json.dumps([f"{member.token} {member.process}" for member in members]))
    return store


def claim(store: Any, uuid: int, members: list[Handle]) -> str:
    """Take a uuid for these members; return a text that they share, and no others have.

    Raises DistBackendError, on all of them, where others have had it.
    """
    text = hashlib.sha256("\n".join(map(str, members)).encode()).hexdigest()[:16]
    if store.compare_set("claimed", "", text).decode() != text:
        raise _c10d.DistBackendError(
            f"the uuid {uuid} was already used, by other members: give each reconfigure its own"
        )
    return f"{uuid}-{text}"
