"""What a collective costs: bytes down a rank, frame headers included, from counts that all ranks know.

Down is the busier direction of a rank's link: a RESULT carries the union of the ranks' blocks, and a rank's own frame
never more than that. So the choice between wire forms goes by bytes down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from p4reduce.compressors.interface import AUTO, Compressor, Form
from p4reduce.protocol.call import opening_columns
from p4reduce.protocol.window import slots_for
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import ENCAP_BYTES

FACT_BYTES = 4
Costs = Mapping[Form, float | None]


def bytes_down(blocks: float, lease: Lease, slots: int | None = None) -> float:
    """Of a collective that moves `blocks` blocks: an opening frame for each slot, then full frames."""
    geometry = lease.geometry
    blocks = math.ceil(blocks)
    slots = slots or min(lease.slot_count, slots_for(blocks, lease.columns))
    header = ENCAP_BYTES + geometry.frame_header_bytes
    opening = slots * header + opening_columns(lease.world_size, lease.block_words) * geometry.block_bytes
    return float(opening + blocks * geometry.block_bytes + -(-blocks // lease.columns) * header)


def payload_bytes(compressor: Compressor, key: str, shape: torch.Size, form: Form, lease: Lease) -> float | None:
    """Expected payload down of one parameter in this form, its facts included; None before its first step."""
    payload = compressor.expected_bytes(key, shape, form, lease)
    if payload is None:
        return None
    return payload + FACT_BYTES * lease.world_size * len(compressor.facts(key, form))


@dataclass(frozen=True)
class Plan:
    """How a bucket travels, and what that should cost; the same on all ranks."""

    forms: dict[str, Form]
    """Of every compressed parameter."""
    costs: dict[Form, float]
    """Bytes down of the whole bucket if all of them went in this form; empty before the first step."""
    blocks: tuple[int | None, int | None]
    """Expected blocks of the first and the second collective; None: unknown."""
    bytes_down: float | None
    """Expected of the forms chosen; None before the first step."""


def plan(compressor: Compressor, shapes: Mapping[str, torch.Size], dense_elements: int, lease: Lease) -> Plan:
    """Choose the wire form of each parameter of a bucket: the compressor's, or with "auto" the cheapest.

    `shapes`: of the compressed parameters. A parameter's first step goes in the form gather where the compressor
    has it, for it needs nothing of earlier steps.
    """
    candidates = compressor.auto_forms() if compressor.form == AUTO else (Form(compressor.form),)
    costs = {
        key: {form: payload_bytes(compressor, key, shape, form, lease) for form in compressor.forms}
        for key, shape in shapes.items()
    }
    forms = _cheapest_together(costs, candidates, dense_elements, lease)
    everywhere = {form: _total(costs, dict.fromkeys(shapes, form), dense_elements, lease) for form in compressor.forms}
    total = _total(costs, forms, dense_elements, lease)
    return Plan(
        forms,
        {form: one[1] for form, one in everywhere.items() if one is not None},
        (None, None) if total is None else total[0],
        None if total is None else total[1],
    )


def _cheapest_together(
    costs: Mapping[str, Costs], candidates: Sequence[Form], dense_elements: int, lease: Lease
) -> dict[str, Form]:
    """The cheapest of: each parameter's own cheapest form, the same without the form shared, and one form for all.

    For a form costs something by itself: the form gather a block for every rank, the form shared a second collective.
    """
    choices = [{key: _cheapest(costs[key], candidates) for key in costs}]
    rest = [form for form in candidates if form is not Form.SHARED]
    if len(candidates) > 1:
        choices.append({key: _cheapest(costs[key], rest) for key in costs})
        choices += [dict.fromkeys(costs, form) for form in candidates]
    totals = [_total(costs, choice, dense_elements, lease) for choice in choices]
    known = [(total[1], index) for index, total in enumerate(totals) if total is not None]
    return choices[min(known)[1]] if len(known) == len(choices) else choices[0]


def _cheapest(costs: Costs, candidates: Sequence[Form]) -> Form:
    known = {form: cost for form in candidates if (cost := costs[form]) is not None}
    if len(known) < len(candidates):
        return Form.GATHER if Form.GATHER in candidates else candidates[0]
    return min(known, key=lambda form: known[form])


def _total(
    costs: Mapping[str, Costs], forms: Mapping[str, Form], dense_elements: int, lease: Lease
) -> tuple[tuple[int, int | None], float] | None:
    """(blocks of the two collectives, bytes down of both) of a bucket; None when a parameter's cost is unknown."""
    block_words = lease.block_words
    first = float(-(-dense_elements // block_words))
    gathered = second = 0.0
    for key, form in forms.items():
        cost = costs[key][form]
        if cost is None:
            return None
        if form is Form.GATHER:
            gathered += cost
        elif form is Form.SHARED:
            second += cost
        else:
            first += cost / (4 * block_words)
    if gathered:  # each rank's last block is half full, on average, and it has one at least
        first += max(gathered / (4 * block_words) + lease.world_size / 2, lease.world_size)
    if Form.SHARED not in forms.values():
        return (round(first), None), bytes_down(first, lease)
    # Of the form shared, the coordinates travel in the first collective and the values in the second: about half each.
    halves = second / (8 * block_words)
    # What is sent of each parameter there begins with a block of its own.
    shared = sum(form is Form.SHARED for form in forms.values())
    first, later = first + halves + 1 / 2, halves + shared / 2
    return (round(first), round(later)), bytes_down(first, lease) + bytes_down(later, lease)
