"""The mean of a bucket over all ranks with a compressor, without I/O: yields collectives, receives their results.

    first agreement   only where a compressor needs it before its very first step in the form sum: a few floats
    first collective  dense gradients, every compressed parameter's message, and metadata
    second            only for parameters in a form that takes two: in the form shared the values at the leader's choice

Every piece is part of a segment of one collective on the switch. `exchange` is a generator, so that the same code runs
over a communicator (all_reduce.py) and, where one process has many ranks, without one (testing/in_process.py). The
compressor changes in one place, at the end: a failure before it leaves it unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import numpy as np
import torch

from p4reduce.codecs import Segment
from p4reduce.codecs.arrays import FLOAT_NAMES, float_dtypes
from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.messages import Dense, Form, Message, Piece, RankMetadata
from p4reduce.compressors.momentum import forget_sent, next_velocities, with_velocity
from p4reduce.compressors.step import Answer, Step, is_finite
from p4reduce.errors import InvalidTensorError, NotFiniteError
from p4reduce_contracts.jobs.lease import Lease

Gradients = Mapping[str, torch.Tensor]
NO_BEGINS: Final[Mapping[str, int]] = {}


@dataclass(frozen=True)
class Request:
    """A collective to take part in."""

    segments: list[Segment]
    name: str
    agreement: str
    """Text that must be equal on all ranks too."""


@dataclass(frozen=True)
class Outcome:
    """The result of a bucket."""

    means: dict[str, torch.Tensor]
    """The mean over all ranks of each gradient, in its shape and type; the same bits on every rank."""
    forms: dict[str, Form]
    """The wire form of each compressed parameter, equal on all ranks; the other parameters were dense."""


def exchange(
    compressor: Compressor,
    gradients: Gradients,
    group: Lease,
    *,
    checked: bool = False,
    begins: Mapping[str, int] = NO_BEGINS,
) -> Generator[Request, list[Any], Outcome]:
    """Compute the mean over all ranks of each gradient of a bucket, and commit the compressor's new state.

    `gradients`: float32, float16 or bfloat16 on the CPU, by parameter name, the same names and shapes in the same order
    on every rank. Those of 16 bits are compressed in float32, and their means rounded. Raises InvalidTensorError for
    other types, and NotFiniteError when one holds a NaN or an infinity, naming the parameter and before anything is
    sent or kept, unless the caller has `checked` that. `begins`: their first elements' indices in the parameters.
    """
    if not checked:
        check_gradients(gradients)
    types = {key: tensor.dtype for key, tensor in gradients.items()}
    gradients = {key: tensor.float() for key, tensor in gradients.items()}
    velocities = next_velocities(compressor, gradients) if compressor.momentum else {}
    gradients |= velocities
    dense = [key for key, tensor in gradients.items() if compressor.is_dense(key, tensor.shape)]
    forms = {key: compressor.form_of(key, gradients[key].shape, group) for key in gradients if key not in dense}
    steps = {}
    for key, form in forms.items():
        gradient = gradients[key]
        length = min(compressor.policy.length(key, gradient.shape) or 0, max(1, gradient.numel()))
        steps[key] = Step(key, gradient, compressor.state_of(key), form, group, length, begins.get(key, 0))
    steps |= yield from _agree_first(compressor, steps, group)
    compressed = dict(zip(steps, compressor.compress([*steps.values()]), strict=True))

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
    answers = [Answer(results[key], metadata.get(key, none)) for key in steps]
    left = compressor.decompress([*steps.values()], [*compressed.values()], answers)
    done = dict(zip(steps, left, strict=True))
    flat_means |= {key: own.mean for key, own in done.items()}
    means = {key: flat_means[key].view(tensor.shape).to(types[key]) for key, tensor in gradients.items()}
    outcome = Outcome(means, forms)
    after = {
        key: steps[key].state.after(done[key]) if key in done else compressor.state_of(key).after_dense()
        for key in gradients
    }
    forget_sent(velocities, steps, compressed, done)
    compressor.commit_step({key: with_velocity(state, velocities.get(key)) for key, state in after.items()})
    return outcome


def complete(
    steps: Generator[Request, list[Any], Outcome], request: Request, sum_segments: Callable[..., list[Any]]
) -> Outcome:
    """Run an exchange from its first `request` to its end, each collective by `sum_segments`."""
    try:
        while True:
            results = sum_segments(request.segments, name=request.name, agreement=request.agreement)
            request = steps.send(results)
    except StopIteration as finished:
        outcome: Outcome = finished.value
        return outcome


def check_gradients(gradients: Gradients) -> None:
    """Refuse what cannot be summed, naming every such parameter."""
    other = [f"{key} ({tensor.dtype})" for key, tensor in gradients.items() if tensor.dtype not in float_dtypes()]
    if other:
        raise InvalidTensorError(
            f"the gradient of {', '.join(other)} is not {FLOAT_NAMES}: give the parameters one of these types"
        )
    bad = [key for key, tensor in gradients.items() if not is_finite(tensor)]
    if bad:
        raise NotFiniteError(
            f"the gradient of {', '.join(bad)} holds a NaN or an infinity: lower the learning rate, or skip this step "
            "on all ranks"
        )


def _agree_first(
    compressor: Compressor, steps: Mapping[str, Step], group: Lease
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
    messages: Sequence[tuple[str, Message]], owner: str, group: Lease, name: str, agreement: str
) -> Generator[Request, list[Any], list[Any]]:
    """Send these parameters' messages together; return the answers, in the order of the messages.

    `name` and `agreement`: the first collective's, which takes place in any case. A second one does when a message
    needs it.
    """
    exchanges = [message.exchange(owner, group) for _, message in messages]
    answers: list[Any] = [None] * len(messages)  # what each exchange is sent next, and in the end what it returned
    going: Sequence[int] = range(len(messages))
    for collective in count():
        pieces: dict[int, Piece] = {}
        for index in going:
            try:
                pieces[index] = exchanges[index].send(answers[index])
            except StopIteration as finished:
                answers[index] = finished.value
        if collective and not pieces:
            break
        together: dict[Hashable, dict[int, Piece]] = {}  # by segment, in the order in which the segments lie there
        for index, piece in sorted(pieces.items(), key=lambda one: one[1].order):
            together.setdefault(piece.segment_key, {})[index] = piece
        kinds = [(type(next(iter(own.values()))), own) for own in together.values()]
        results = yield Request(
            [kind.segment({messages[i][0]: piece for i, piece in own.items()}, owner, group) for kind, own in kinds],
            f"values of {name}" if collective else name,
            "" if collective else agreement,
        )
        for (kind, own), result in zip(kinds, results, strict=True):
            for index, answer in zip(own, kind.answers([*own.values()], result, group), strict=True):
                answers[index] = answer
        going = [*pieces]
    return answers
