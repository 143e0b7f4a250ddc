"""The entries of Tofino's program that differ from v1model's (switch_entries.py); see docs/tofino.md."""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_contracts.p4.config.v1 import p4info_pb2 as p4i
from p4reduce_contracts.p4runtime.entries import TableEntry
from p4reduce_controller.jobs.model import Grant
from p4reduce_controller.jobs.switch_entries import group_number, places
from p4reduce_controller.p4names import P4Names

_VERSIONS = 2
_CELL = 1 << 16
"""Cell numbers, slot counts and epochs have 16 bits; what the chip is to subtract is given as its negative."""
_TAGS, _RANK_TAGS = "MainIngress.tags.tags", "MainIngress.tags.rank_tags"


@dataclass(frozen=True)
class Registers:
    """How many slots the whole switch has, by its register `tags`, and how many cells its register `rank_tags`.

    Each rank number of a job has a range of 2 x `slots` cells, so that ranges of no two jobs overlap.
    """

    slots: int
    rank_cells: int

    @classmethod
    def of(cls, p4info: p4i.P4Info) -> Registers:
        """Return the sizes in P4Info. Raises ValueError where it lacks these registers."""
        sizes = {register.preamble.name: register.size for register in p4info.registers}
        missing = {_TAGS, _RANK_TAGS} - sizes.keys()
        if missing:
            raise ValueError(
                f"its P4Info has no register {', '.join(sorted(missing))}; have it written with p4c-barefoot's "
                "--p4runtime-force-std-externs, as `make p4-tofino` does"
            )
        return cls(sizes[_TAGS] // _VERSIONS, sizes[_RANK_TAGS])

    @property
    def max_children(self) -> int:
        """The most ranks of one job."""
        return self.rank_cells // (_VERSIONS * self.slots)


def admission(grant: Grant, names: P4Names, registers: Registers) -> list[TableEntry]:
    """Return the entries that admit the ranks of a job: two for each, one a version of its slots."""
    slots = registers.slots
    return [
        TableEntry(
            table=names.admit,
            match={**place, "version": version},
            action=names.admit_rank,
            params={
                "rank_bit": 1 << rank,
                "full": grant.full,
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
