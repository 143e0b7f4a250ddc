"""Analyses of a whole program: which features it uses."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from p4reduce_switch.program.ir import expressions, program, statements


class Features(Struct, frozen=True):
    """The features that a back-end may omit for a program that does not use them."""

    clones: bool
    resubmits: bool
    recirculates: bool
    queued: bool
    """Whether packets pass egress queues: the program reads what a queue tells, or sets a priority."""
    reads: frozenset[int]
    """Slots of fields that are read by name: in expressions, keys, calculations, digests and field lists."""

    @property
    def in_stages(self) -> bool:
        """Whether the traffic manager runs a packet block by block: it may pass again, or waits in a queue."""
        return self.clones or self.resubmits or self.recirculates or self.queued


def features(whole: program.Program) -> Features:
    """Return the features of a program."""
    kinds: set[type] = set()
    reads: set[int] = set()
    priority = whole.standard.priority
    queued = whole.target.queues
    for node in walk(whole):
        kinds.add(type(node))
        if isinstance(node, expressions.FieldValue) and node.field.slot is not None:
            reads.add(node.field.slot)
        elif isinstance(node, program.Slot):
            reads.add(node.number)
        elif isinstance(node, statements.Store) and node.target.slot is not None and node.target.slot == priority:
            queued = True
    return Features(
        statements.Clone in kinds,
        statements.Resubmit in kinds,
        statements.Recirculate in kinds,
        queued or not reads.isdisjoint(whole.standard.of_queues - {None}),
        frozenset(reads),
    )


def may_exit(action: program.Action) -> bool:
    """Return whether the action contains an exit statement."""
    return any(isinstance(instruction, statements.Exit) for instruction in action.code)


def walk(root: object) -> Iterator[object]:
    """Yield every node of the IR that is reachable from `root`, once."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, (tuple, list)):
            pending += node
        elif isinstance(node, dict):
            pending += node.values()
        elif isinstance(node, Struct) and id(node) not in seen:
            seen.add(id(node))
            yield node
            pending += [getattr(node, name) for name in node.__struct_fields__]
