"""Which programs several threads can run: each frame accesses registers at one index, whose cells it can lock."""

from __future__ import annotations

from p4reduce_switch.program.ir.expressions import FieldValue
from p4reduce_switch.program.ir.features import features, walk
from p4reduce_switch.program.ir.flow import order
from p4reduce_switch.program.ir.places import Header
from p4reduce_switch.program.ir.program import Program, Table
from p4reduce_switch.program.ir.statements import Log, RegisterRead, RegisterWrite, Store

_ACCESSES = (RegisterRead, RegisterWrite)


def can_share(program: Program) -> bool:
    """Return whether several threads can run frames of a program at the same time.

    The index of all registers is one field of metadata, which is not set any more after the first access. No message
    and no direct counter or meter needs the order of the frames.
    """
    if program.target.threads == 1:
        return False
    indices = [node.index for node in walk(program) if isinstance(node, _ACCESSES)]
    fields = {index.field.slot: index.field for index in indices if isinstance(index, FieldValue)}
    if not all(isinstance(index, FieldValue) for index in indices) or len(fields) > 1:
        return False
    if features(program).in_stages or any(_is_ordered(node) for node in walk(program)):
        return False
    ((slot, field),) = fields.items() or ((None, None),)
    if field is None:
        return True
    if not isinstance(field.header, Header) or not field.header.metadata:
        return False  # statements on headers change it too
    if _accesses(program.parser) or _accesses(program.egress):
        return False
    nodes, graph = program.ingress.nodes, program.ingress.graph
    first = [number for number, node in enumerate(nodes) if _accesses(node)]
    later = {found for number in first for found in order(number, graph)}
    return not any(isinstance(inner, Store) and inner.target.slot == slot for n in later for inner in walk(nodes[n]))


def _accesses(root: object) -> bool:
    return any(isinstance(node, _ACCESSES) for node in walk(root))


def _is_ordered(node: object) -> bool:
    direct = isinstance(node, Table) and (node.has_direct_counter or node.direct_meter is not None)
    return direct or isinstance(node, Log)
