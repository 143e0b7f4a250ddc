"""What a collective costs: bytes down a rank, frame headers included, from counts that all ranks know.

Down is the busier direction of a rank's link: a RESULT carries the union of the ranks' blocks, and a rank's own frame
never more than that. So the choice between wire forms goes by bytes down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from p4reduce.compressors.forms import WIRE_FORMS, Form
from p4reduce.compressors.forms.dense import dense_blocks
from p4reduce.compressors.interface import AUTO, Compressor
from p4reduce.group import Group
from p4reduce.protocol.window import slots_for
from p4reduce_contracts.wire import Geometry
from p4reduce_contracts.wire.opening import opening_words
from p4reduce_runtime.datagrams import ENCAP_BYTES

Costs = Mapping[Form, float | None]
"""Payload bytes down of one parameter in each form; None before its first step."""
Total = tuple[tuple[int, int | None], float]
"""Blocks of the two collectives, and the bytes down of both together."""


def bytes_down(blocks: float, group: Group, slots: int | None = None) -> float:
    """Return what a collective of `blocks` blocks costs: an opening frame for each slot, then full frames."""
    geometry = _geometry(group.columns, group.block_words)
    blocks = math.ceil(blocks)
    slots = slots or min(group.slot_count, slots_for(blocks, group.columns))
    header = ENCAP_BYTES + geometry.frame_header_bytes
    opening_blocks = -(-opening_words(group.world_size, geometry.frame_words) // group.block_words)
    opening = slots * header + opening_blocks * geometry.block_bytes
    return float(opening + blocks * geometry.block_bytes + -(-blocks // group.columns) * header)


@cache
def _geometry(columns: int, block_words: int) -> Geometry:
    """Return the geometry; cached, since its checks take longer than a plan."""
    return Geometry(columns, block_words)


@dataclass(frozen=True)
class Plan:
    """The forms in which a bucket is sent, and their predicted cost; equal on all ranks."""

    forms: dict[str, Form]
    """Of every compressed parameter."""
    costs: dict[Form, float]
    """Bytes down of the whole bucket if all of them went in this form; empty before the first step."""
    blocks: tuple[int | None, int | None]
    """Expected blocks of the first and the second collective; None: unknown."""
    bytes_down: float | None
    """Expected of the forms chosen; None before the first step."""


def plan(compressor: Compressor, shapes: Mapping[str, torch.Size], dense_elements: int, group: Group) -> Plan:
    """Choose the wire form of each parameter of a bucket: the compressor's, or with "auto" the cheapest.

    `shapes`: of the compressed parameters.
    """
    candidates = compressor.auto_forms() if compressor.form == AUTO else (Form(compressor.form),)
    costs = {
        key: {form: compressor.expected_bytes(key, shape, form, group) for form in compressor.forms}
        for key, shape in shapes.items()
    }
    totals: dict[tuple[Form, ...], Total | None] = {}

    def total_of(forms: Mapping[str, Form]) -> Total | None:
        """Return what a choice for all parameters costs; cached, since most choices recur."""
        choice = tuple(forms.values())
        if choice not in totals:
            totals[choice] = _total(costs, forms, dense_elements, group)
        return totals[choice]

    forms = _cheapest_together(costs, candidates, total_of)
    everywhere = {form: total_of(dict.fromkeys(shapes, form)) for form in compressor.forms}
    total = total_of(forms)
    return Plan(
        forms,
        {form: of_form[1] for form, of_form in everywhere.items() if of_form is not None},
        (None, None) if total is None else total[0],
        None if total is None else total[1],
    )


def _cheapest_together(
    costs: Mapping[str, Costs], candidates: Sequence[Form], total_of: Callable[[Mapping[str, Form]], Total | None]
) -> dict[str, Form]:
    """Choose the cheapest of: each parameter's own cheapest form, the same in one collective, and one form for all.

    A form has a fixed cost: the form gather a block for every rank, the form shared a second collective.
    """
    choices = [{key: _cheapest(costs[key], candidates) for key in costs}]
    in_one_collective = [form for form in candidates if WIRE_FORMS[form].second is None]
    if len(candidates) > 1:
        choices.append({key: _cheapest(costs[key], in_one_collective or candidates) for key in costs})
        choices += [dict.fromkeys(costs, form) for form in candidates]
    totals = [total_of(choice) for choice in choices]
    known = [(total[1], index) for index, total in enumerate(totals) if total is not None]
    return choices[min(known)[1]] if len(known) == len(choices) else choices[0]


def _cheapest(costs: Costs, candidates: Sequence[Form]) -> Form:
    """Choose one parameter's cheapest form; before all costs are known one that needs nothing of earlier steps."""
    known = {form: cost for form in candidates if (cost := costs[form]) is not None}
    if len(known) < len(candidates):
        return next((form for form in candidates if WIRE_FORMS[form].for_first_steps), candidates[0])
    return min(known, key=lambda form: known[form])


def _total(costs: Mapping[str, Costs], forms: Mapping[str, Form], dense_elements: int, group: Group) -> Total | None:
    """Return what this choice costs; None when a parameter's cost is unknown."""
    payloads: dict[Form, list[float]] = {form: [] for form in Form}
    for key, form in forms.items():
        cost = costs[key][form]
        if cost is None:
            return None
        payloads[form].append(cost)
    blocks = dense_blocks(dense_elements, group)
    for form, of_form in payloads.items():
        if of_form:
            blocks = WIRE_FORMS[form].add_blocks(blocks, of_form, group)
    if blocks.second is None:
        return (round(blocks.first), None), bytes_down(blocks.first, group)
    both = bytes_down(blocks.first, group) + bytes_down(blocks.second, group)
    return (round(blocks.first), round(blocks.second)), both
