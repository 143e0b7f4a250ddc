"""The mean of a bucket over all ranks with a compressor, without I/O: yields collectives, receives their results.

    first agreement   only where a compressor needs it before its very first step in the form sum: a few floats
    first collective  dense gradients, every compressed parameter's message, and metadata
    second            only for parameters in a form that takes two: in the form shared the values at the leader's choice

Every piece is part of a segment of one collective on the switch. `exchange` is a generator, so that the same code runs
over a communicator (all_reduce.py) and, where one process has many ranks, without one (the lab's in_process.py). The
compressor changes in one place, at the end: a failure before it leaves it unchanged.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch

from p4reduce.codecs import Segment
from p4reduce.compressors.forms import Dense, Form, Message, MessageExchange, Piece, RankMetadata
from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.momentum import forget_sent, next_velocity
from p4reduce.compressors.step import Answer, Step, is_finite
from p4reduce.errors import InvalidTensorError, NotFiniteError
from p4reduce.group import Group

Gradients = Mapping[str, torch.Tensor]
_TYPES: Final = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Request:
    """A collective to take part in."""

    segments: list[Segment]
    name: str
    agreement: str
    """What else must be equal on all ranks."""


@dataclass(frozen=True)
class Outcome:
    """The result of a bucket."""

    means: dict[str, torch.Tensor]
    """The mean over all ranks of each gradient, in its shape and type; the same bits on every rank."""
    forms: dict[str, Form]
    """The wire form of each compressed parameter, equal on all ranks; the other parameters were dense."""


def exchange(
    compressor: Compressor, gradients: Gradients, group: Group, *, checked: bool = False
) -> Generator[Request, list[Any], Outcome]:
    """Compute the mean over all ranks of each gradient of a bucket, and commit the compressor's new state.

    `gradients`: float32, float16 or bfloat16 on the CPU, by parameter name, the same names and shapes in the same order
    on every rank. Those of 16 bits are compressed in float32, and their means rounded. Raises InvalidTensorError for
    other types, and NotFiniteError when one holds a NaN or an infinity, naming the parameter and before anything is
    sent or kept, unless the caller has `checked` that.
    """
    if not checked:
        check_gradients(gradients)
    types = {key: tensor.dtype for key, tensor in gradients.items()}
    gradients = {key: tensor.float() for key, tensor in gradients.items()}
    velocities = {
        key: next_velocity(key, compressor.state_of(key), tensor, compressor.momentum)
        for key, tensor in gradients.items()
        if compressor.momentum and bool(tensor.any())
    }
    gradients |= velocities
    dense = [key for key, tensor in gradients.items() if compressor.is_dense(key, tensor.shape)]
    forms = {key: compressor.form_of(key, gradients[key].shape, group) for key in gradients if key not in dense}
    steps = {key: Step(key, gradients[key], compressor.state_of(key), form, group) for key, form in forms.items()}
    steps |= yield from _agree_first(compressor, steps, group)
    compressed = compressor.compress_all(steps)

    whole = {key: gradients[key].detach().reshape(-1) for key in dense}
    messages: list[tuple[str, Message]] = [("", Dense(whole))] if dense else []
    messages += [(key, sent.message) for key, sent in compressed.items()]
    messages += [(key, RankMetadata(sent.metadata)) for key, sent in compressed.items() if sent.metadata]
    agreement = compressor.agreement_text([step.state for step in steps.values()])
    found = iter((yield from _exchange_messages(messages, compressor.name, group, "gradients", agreement)))

    flat_means = dict(zip(dense, next(found) if dense else (), strict=True))
    results = {key: next(found) for key in compressed}
    metadata = {key: next(found) for key, sent in compressed.items() if sent.metadata}
    none = np.zeros((group.world_size, 0), np.float32)
    answers = {key: Answer(results[key], metadata.get(key, none)) for key in steps}
    done = compressor.decompress_all(steps, compressed, answers)
    flat_means |= {key: left.mean for key, left in done.items()}
    means = {key: flat_means[key].view(tensor.shape).to(types[key]) for key, tensor in gradients.items()}
    outcome = Outcome(means, forms)
    after = {
        key: steps[key].state.after(done[key]) if key in done else compressor.state_of(key).after_dense()
        for key in gradients
    }
    forget_sent(velocities, steps, done)
    after |= {key: replace(after[key], velocity=velocity.view(-1)) for key, velocity in velocities.items()}
    compressor.commit_step(after)
    return outcome


def check_gradients(gradients: Gradients) -> None:
    """Refuse what cannot be summed, naming every such parameter."""
    other = [f"{key} ({tensor.dtype})" for key, tensor in gradients.items() if tensor.dtype not in _TYPES]
    if other:
        raise InvalidTensorError(
            f"the gradient of {', '.join(other)} is not float32, float16 or bfloat16: give the parameters one of these "
            "types"
        )
    bad = [key for key, tensor in gradients.items() if not is_finite(tensor)]
    if bad:
        raise NotFiniteError(
            f"the gradient of {', '.join(bad)} holds a NaN or an infinity: lower the learning rate, or skip this step "
            "on all ranks"
        )


def _agree_first(
    compressor: Compressor, steps: Mapping[str, Step], group: Group
) -> Generator[Request, list[Any], dict[str, Step]]:
    """Return the steps that need a scale of all ranks before they can be made, with that scale in their states."""
    metadata = {key: values for key, step in steps.items() if (values := compressor.initial_metadata(step))}
    if not metadata:
        return {}
    messages = [(key, RankMetadata(values)) for key, values in metadata.items()]
    found = yield from _exchange_messages(messages, compressor.name, group, "first agreement", "")
    scales = {key: compressor.agreed_scale(rows) for key, rows in zip(metadata, found, strict=True)}
    return {key: replace(steps[key], state=replace(steps[key].state, scale=scale)) for key, scale in scales.items()}


def _exchange_messages(
    messages: Sequence[tuple[str, Message]],
    owner: str,
    group: Group,
    name: str,
    agreement: str,
) -> Generator[Request, list[Any], list[Any]]:
    """Send these parameters' messages together; return the answers, in the order of the messages.

    `name` and `agreement`: of the first collective, which takes place in any case. A second one does when a message
    needs it.
    """
    exchanges = [message.exchange(owner, group) for _, message in messages]
    answers: dict[int, Any] = {}
    pieces = _next_pieces(exchanges, dict.fromkeys(range(len(messages))), answers)
    while True:
        requested = _segments_of(pieces)
        request = Request(
            [kind.segment({messages[i][0]: pieces[i] for i in indices}, owner, group) for kind, indices in requested],
            name,
            agreement,
        )
        results = yield request
        received: dict[int, Any] = {}
        for (kind, indices), result in zip(requested, results, strict=True):
            received |= zip(indices, kind.answers([pieces[i] for i in indices], result, group), strict=True)
        pieces = _next_pieces(exchanges, received, answers)
        if not pieces:
            break
        name, agreement = f"values of {name}", ""
    return [answers[index] for index in range(len(messages))]


def _next_pieces(
    exchanges: Sequence[MessageExchange], received: Mapping[int, Any], answers: dict[int, Any]
) -> dict[int, Piece]:
    """Pass each result to its exchange; return the next pieces, or store the answer in `answers`.

    All by index in `exchanges`.
    """
    pieces = {}
    for index in sorted(received):
        try:
            pieces[index] = exchanges[index].send(received[index])
        except StopIteration as arrived:
            answers[index] = arrived.value
    return pieces


def _segments_of(pieces: Mapping[int, Piece]) -> list[tuple[type[Piece], list[int]]]:
    """Return which pieces make up each segment of a collective, in the order in which the segments lie there."""
    together: dict[Hashable, list[int]] = {}
    for index in sorted(pieces, key=lambda index: (pieces[index].order, index)):
        together.setdefault(pieces[index].segment_key, []).append(index)
    return [(type(pieces[indices[0]]), indices) for indices in together.values()]
