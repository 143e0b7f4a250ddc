"""The entries of Tofino's program that differ from v1model's; see docs/tofino.md."""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_controller.registry.job import Grant
from p4reduce_controller.switches.entries.v1model import group_number, parent_group_number, place_of, places
from p4reduce_controller.switches.program_names import TO_PARENT, P4Names
from p4reduce_runtime.p4.config.v1 import p4info_pb2 as p4i
from p4reduce_runtime.p4runtime.entries import TableEntry

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
        """The most children of one job."""
        return self.rank_cells // (_VERSIONS * self.slots)


def admission(grant: Grant, names: P4Names, registers: Registers) -> list[TableEntry]:
    """Return the entries that admit the children of a job, and its parent: two for each, one a version of its slots."""
    slots, root = registers.slots, grant.parent is None
    minus_slot_count, minus_epoch = -grant.slots.count % _CELL, -grant.epoch % _CELL
    children, parent = group_number(grant.job_id), parent_group_number(grant.job_id)
    entries = [
        TableEntry(
            table=names.admit,
            match={**place, "version": version},
            action=names.admit_rank,
            params={
                "rank_bit": 1 << bit,
                "full": grant.level.full,
                "first_cell": version * slots + grant.slots.base,
                "first_rank_cell": (_VERSIONS * bit + version) * slots + grant.slots.base,
                "minus_slot_count": minus_slot_count,
                "epoch": grant.epoch,
                "minus_epoch": minus_epoch,
                "group": children if root else parent,
                TO_PARENT: int(not root),
            },
        )
        for bit, place in enumerate(places(grant))
        for version in range(_VERSIONS)
    ]
    if grant.parent is not None:
        place = place_of(grant.job_id, grant.parent.address, grant.parent.secret)
        answers = {"minus_slot_count": minus_slot_count, "minus_epoch": minus_epoch, "group": children}
        entries += [
            TableEntry(names.admit, {**place, "version": version}, names.admit_parent, answers)
            for version in range(_VERSIONS)
        ]
    return entries
