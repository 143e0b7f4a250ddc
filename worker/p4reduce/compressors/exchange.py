"""One bucket's mean over all ranks with a compressor, without I/O: requests for collectives out, their results in.

    first agreement   only where a compressor needs it before its very first step in the form sum: a few floats
    first collective  dense gradients (float32), integers in lanes, values, all ranks' coordinates, and facts
    second            only for parameters in the form shared: the values at the leader's choice

Every part is a segment of one collective on the switch. `exchange` is a generator, so that the same code runs over a
communicator (all_reduce.py) and, where one process plays many ranks, without one (study/in_process.py).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.codecs import Float32, FloatLanes, Int32, Lanes, Segment
from p4reduce.codecs.coordinates import GatheredCoordinates, RanksCoordinates
from p4reduce.codecs.float_lanes import Summed
from p4reduce.compressors.cost import Plan, plan
from p4reduce.compressors.interface import Compressor, Form, Integers, Message, Stream, Support, Values
from p4reduce.compressors.residues import is_finite
from p4reduce.errors import InvalidTensor
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.lanes import lanes_per_word

Gradients = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Request:
    """A collective to take part in."""

    segments: list[Segment]
    name: str
    expected_blocks: int | None


@dataclass(frozen=True)
class Outcome:
    """What became of a bucket."""

    means: dict[str, torch.Tensor]
    """The mean over all ranks of each gradient, in its shape; the same bits on every rank."""
    plan: Plan


def exchange(
    compressor: Compressor, gradients: Gradients, lease: Lease
) -> Generator[Request, list[Any], Outcome]:
    """The mean over all ranks of each gradient of a bucket.

    `gradients`: float32 on the CPU, by parameter name, the same names and shapes in the same order on every
    rank. Raises InvalidTensor, naming the parameter and before anything is sent or kept, when one holds a NaN or an
    infinity.
    """
    check_gradients(gradients)
    shapes = {key: one.shape for key, one in gradients.items() if not compressor.is_dense(key, one.shape)}
    dense = [key for key in gradients if key not in shapes]
    chosen = plan(compressor, shapes, sum(gradients[key].numel() for key in dense), lease)
    yield from _first_agreement(compressor, gradients, chosen.forms, lease)

    messages = {key: compressor.compress(key, gradients[key], form, lease) for key, form in chosen.forms.items()}
    parts = _Parts(lease)
    if dense:
        flat = torch.cat([gradients[key].detach().reshape(-1) for key in dense])
        parts.add("dense", Float32(flat, mean=True, name=f"the dense gradients ({', '.join(dense)})"))
    _add_sums(parts, compressor, messages, lease)
    _add_bytes(parts, messages, lease)
    _add_facts(parts, {key: compressor.facts(key, form) for key, form in chosen.forms.items()}, lease)
    results = yield from parts.request(f"gradients, {compressor.agreed(shapes)}", chosen.blocks[0])

    answers = _answers_of_sums(results, messages, compressor, lease)
    streams, supports = _answers_of_bytes(results, messages)
    answers |= streams
    if supports:
        answers |= yield from _second(compressor, supports, lease, chosen.blocks[1])
    flat_means = {key: compressor.decompress(key, one, answers[key], lease) for key, one in messages.items()}
    _take_facts(results, compressor, chosen.forms)

    if dense:
        sizes = [gradients[key].numel() for key in dense]
        flat_means |= zip(dense, torch.split(results["dense"], sizes), strict=True)
    for key in gradients:
        compressor.stepped(key)
    return Outcome({key: flat_means[key].view(one.shape) for key, one in gradients.items()}, chosen)


def check_gradients(gradients: Gradients) -> None:
    """Refuse what cannot be summed, naming every such parameter."""
    other = [f"{key} ({one.dtype})" for key, one in gradients.items() if one.dtype != torch.float32]
    if other:
        raise InvalidTensor(f"the gradient of {', '.join(other)} is not float32: keep the parameters float32")
    bad = [key for key, one in gradients.items() if not is_finite(one)]
    if bad:
        raise InvalidTensor(
            f"the gradient of {', '.join(bad)} holds a NaN or an infinity: lower the learning rate, or skip this step "
            "on all ranks"
        )


@dataclass
class _Parts:
    """The segments of one collective, by name."""

    lease: Lease
    segments: dict[str, Segment] = field(default_factory=dict)

    def add(self, name: str, segment: Segment) -> None:
        self.segments[name] = segment

    def request(self, name: str, expected_blocks: int | None) -> Generator[Request, list[Any], dict[str, Any]]:
        results = yield Request(list(self.segments.values()), name, expected_blocks)
        return dict(zip(self.segments, results, strict=True))


def _first_agreement(
    compressor: Compressor, gradients: Gradients, forms: Mapping[str, Form], lease: Lease
) -> Generator[Request, list[Any], None]:
    facts = {key: compressor.first_facts(key, gradients[key]) for key, form in forms.items() if form is Form.SUM}
    facts = {key: values for key, values in facts.items() if values}
    if facts:
        parts = _Parts(lease)
        _add_facts(parts, facts, lease)
        results = yield from parts.request("first agreement", 1)
        for key, rows in _cut_facts(results["facts"], facts):
            compressor.agree(key, rows)


# ----- the form sum: all parameters of one lane width or value width, one after the other, each from a block's start


def _groups(messages: Mapping[str, Message], compressor: Compressor, lease: Lease) -> dict[tuple[str, int], list[str]]:
    groups: dict[tuple[str, int], list[str]] = {}
    for key, message in messages.items():
        if isinstance(message, Integers):
            groups.setdefault(("lanes", compressor.lane_bits(message.bound, lease)), []).append(key)
        elif isinstance(message, Values):
            groups.setdefault(("values", message.bits), []).append(key)
    return groups


def _add_sums(parts: _Parts, compressor: Compressor, messages: Mapping[str, Message], lease: Lease) -> None:
    for (kind, bits), keys in _groups(messages, compressor, lease).items():
        tensors = [message.values for key in keys if isinstance(message := messages[key], Integers | Values)]
        flat = _aligned(tensors, lease.block_words * lanes_per_word(bits))
        name = f"{compressor.name} of {', '.join(keys)}"
        if kind == "lanes":
            bound = max(message.bound for key in keys if isinstance(message := messages[key], Integers))
            parts.add(f"lanes{bits}", Lanes(flat, bits, bound=bound, name=name))
        else:
            parts.add(f"values{bits}", _values_segment(flat, bits, name))


def _answers_of_sums(
    results: Mapping[str, Any], messages: Mapping[str, Message], compressor: Compressor, lease: Lease
) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for (kind, bits), keys in _groups(messages, compressor, lease).items():
        tensors = [message.values for key in keys if isinstance(message := messages[key], Integers | Values)]
        sizes = [tensor.numel() for tensor in tensors]
        result = results[f"{kind}{bits}"]
        per_block = lease.block_words * lanes_per_word(bits)
        if kind == "lanes":
            answers |= zip(keys, _unaligned(result, sizes, per_block), strict=True)
        else:
            answers |= zip(keys, _summed(result, tensors, per_block), strict=True)
    return answers


def _values_segment(flat: torch.Tensor, bits: int, name: str) -> Segment:
    return Float32(flat, mean=True, name=name) if bits == 32 else FloatLanes(flat, bits, mean=True, name=name)


def _summed(result: Any, tensors: Sequence[torch.Tensor], per_block: int) -> list[Summed]:
    """The answer to each tensor of a segment; as float32 nothing worth keeping was rounded away."""
    sizes = [tensor.numel() for tensor in tensors]
    if not isinstance(result, Summed):
        return [Summed(*pair) for pair in zip(_unaligned(result, sizes, per_block), tensors, strict=True)]
    totals, sent = (_unaligned(one, sizes, per_block) for one in result)
    return [Summed(*pair) for pair in zip(totals, sent, strict=True)]


def _aligned(tensors: Sequence[torch.Tensor], per_block: int) -> torch.Tensor:
    padded = [torch.nn.functional.pad(tensor, (0, -tensor.numel() % per_block)) for tensor in tensors]
    return torch.cat(padded)


def _unaligned(flat: torch.Tensor, sizes: Sequence[int], per_block: int) -> list[torch.Tensor]:
    wholes = torch.split(flat, [-(-size // per_block) * per_block for size in sizes])
    return [whole[:size] for whole, size in zip(wholes, sizes, strict=True)]


# ----- the form gather, and the leader's choice of the form shared: all bytes of a rank, one parameter after the other


def _add_bytes(parts: _Parts, messages: Mapping[str, Message], lease: Lease) -> None:
    own = [message for message in messages.values() if isinstance(message, Stream | Support)]
    if own:
        data = [message.data for message in own]
        parts.add("coordinates", GatheredCoordinates([message.part for message in own], data, lease.rank))


def _answers_of_bytes(
    results: Mapping[str, Any], messages: Mapping[str, Message]
) -> tuple[dict[str, RanksCoordinates], dict[str, torch.Tensor]]:
    """The ranks' coordinates of each Stream, and the leader's choice of each Support, int64 [chosen]."""
    keys = [key for key, message in messages.items() if isinstance(message, Stream | Support)]
    found = dict(zip(keys, results.get("coordinates", []), strict=True))
    streams = {key: one for key, one in found.items() if isinstance(messages[key], Stream)}
    supports = {key: torch.from_numpy(one.ranks[0].indices) for key, one in found.items() if key not in streams}
    return streams, supports


def _second(
    compressor: Compressor, supports: Mapping[str, torch.Tensor], lease: Lease, expected_blocks: int | None
) -> Generator[Request, list[Any], dict[str, Any]]:
    """Sum the values at the leaders' choices."""
    values: dict[int, dict[str, torch.Tensor]] = {}
    for key, support in supports.items():
        chosen = compressor.values_at(key, support)
        values.setdefault(chosen.bits, {})[key] = chosen.values
    parts = _Parts(lease)
    for bits, tensors in values.items():
        flat = _aligned(list(tensors.values()), lease.block_words * lanes_per_word(bits))
        parts.add(f"values{bits}", _values_segment(flat, bits, "values"))
    results = yield from parts.request("values at the leaders' choice", expected_blocks)
    answers: dict[str, Any] = {}
    for bits, tensors in values.items():
        per_block = lease.block_words * lanes_per_word(bits)
        summed = _summed(results[f"values{bits}"], list(tensors.values()), per_block)
        answers |= {key: (supports[key], one) for key, one in zip(tensors, summed, strict=True)}
    return answers


# ----- facts: every rank's few floats, each rank in its own row, so that all learn all of them


def _add_facts(parts: _Parts, facts: Mapping[str, Sequence[float]], lease: Lease) -> None:
    own = np.array([value for values in facts.values() for value in values], np.float32)
    if len(own):
        rows = np.zeros((lease.world_size, len(own)), np.float32)
        rows[lease.rank] = own
        # As bits, each in a word that no other rank holds: exact copies, whatever lies beside them in the block.
        parts.add("facts", Int32(rows.view(np.int32), name="the facts of " + ", ".join(facts)))


def _cut_facts(
    bits: NDArray[np.int32], facts: Mapping[str, Sequence[float]]
) -> list[tuple[str, NDArray[np.float32]]]:
    ends = np.cumsum([len(values) for values in facts.values()])[:-1]
    return list(zip(facts, np.split(bits.view(np.float32), ends, axis=1), strict=True))


def _take_facts(results: Mapping[str, Any], compressor: Compressor, forms: Mapping[str, Form]) -> None:
    facts = {key: values for key, form in forms.items() if (values := compressor.facts(key, form))}
    if facts:
        for key, rows in _cut_facts(results["facts"], facts):
            compressor.agree(key, rows)
