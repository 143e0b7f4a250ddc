"""The entries of Tofino's program that differ from v1model's (switch_entries.py); docs/tofino.md says why they do."""

from __future__ import annotations

from p4reduce_contracts.jobs.errors import InvalidRequest
from p4reduce_contracts.p4runtime.entries import TableEntry
from p4reduce_controller.jobs.model import Grant
from p4reduce_controller.jobs.switch_entries import group_number, places
from p4reduce_controller.p4names import TOFINO

_VERSIONS = 2
_CELL = 1 << 16
"""Cell numbers, slot counts and epochs have 16 bits; what the chip is to subtract is given as its negative."""


def admission(grant: Grant, slots: int, rank_cells: int) -> list[TableEntry]:
    """Return the entries that let the ranks of a job in: two for each, one a version of its slots.

    `slots` are those of the whole switch, `rank_cells` the cells of its register `rank_tags` (RANK_CELLS in
    p4src/tna/headers.p4): each rank number has a range of 2 x `slots` of them, so that ranges of no two jobs overlap.
    Raises InvalidRequest for more ranks than have one.
    """
    most = rank_cells // (_VERSIONS * slots)
    if grant.world_size > most:
        raise InvalidRequest(f"this switch has room for {most} ranks a job, and {grant.name} has {grant.world_size}")
    return [
        TableEntry(
            table=TOFINO.admit,
            match={**place, "version": version},
            action=TOFINO.admit_rank,
            params={
                "rank_bit": 1 << rank,
                "full": (1 << grant.world_size) - 1,
                "first_cell": version * slots + grant.slots.base,
                "first_rank_cell": (_VERSIONS * rank + version) * slots + grant.slots.base,
                "minus_slot_count": -grant.slots.count % _CELL,
                "epoch": grant.epoch,
                "minus_epoch": -grant.epoch % _CELL,
                "group": group_number(grant.job_id),
            },
        )
        for rank, place in enumerate(places(grant))
        for version in range(_VERSIONS)
    ]
