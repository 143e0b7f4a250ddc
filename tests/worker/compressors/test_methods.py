"""What holds of every method in every form, step by step over a switch: equal means, and nothing that gets lost."""

from __future__ import annotations

import pytest
import torch

from rigs.ranks import MAKERS, ODD, make, odd, over_switch, residue_of

STEPS = 4
FILTERED = "scalecom"
"""With a low-pass filter in its residue: a part of what is not sent is forgotten."""


def is_dense(name: str, shape: tuple[int, ...]) -> bool:
    return name == "none" or (len(shape) < 2 and not name.startswith("quantize"))


@pytest.mark.parametrize("world_size", [1, 9])
@pytest.mark.parametrize("name", MAKERS)
def test_means_are_equal_and_with_the_residues_make_up_the_gradients(name: str, world_size: int) -> None:
    """After each step: N · mean and the new residues are the old residues and the gradients, or the velocities.

    Dense parameters, and all of them in the steps of a warm-up and no later, are the mean of the gradients.
    """
    compressors = [make(name) for _ in range(world_size)]
    momentum, warmup_steps = compressors[0].momentum, compressors[0].warmup_steps
    kept = {key: torch.zeros(world_size, torch.Size(shape).numel()) for key, shape in ODD.items()}
    velocities = {key: zeros.clone() for key, zeros in kept.items()}
    sent_ever, kept_ever = 0.0, 0.0
    for step, found in enumerate(over_switch(compressors, odd, STEPS)):
        for key, shape in ODD.items():
            given = torch.stack([odd(rank, step)[key].reshape(-1) for rank in range(world_size)])
            if momentum:
                used = given.any(dim=1, keepdim=True)
                given = torch.where(used, velocities[key].lerp(given, 1 - momentum), 0)
            mean = found[0][0].means[key]
            for outcome, report in found:
                assert outcome.means[key].shape == shape and torch.equal(outcome.means[key], mean)
                assert (key in report.forms) == (step >= warmup_steps and not is_dense(name, shape))
            total = given
            if key in found[0][1].forms:
                total = kept[key] + given
                kept[key] = torch.stack([residue_of(one, key) for one in compressors])
                total = total - kept[key]
            else:
                assert compressors[0].residue(key) is None
            for rank, one in enumerate(compressors):
                velocity = one.state_of(key).velocity
                velocities[key][rank] = 0 if velocity is None else velocity
            if name != FILTERED or key not in found[0][1].forms:
                torch.testing.assert_close(world_size * mean.reshape(-1), total.sum(0), rtol=1e-4, atol=1e-3)
            sent_ever = max(sent_ever, float(mean.abs().max()) if mean.numel() else 0)
            kept_ever = max(kept_ever, float(kept[key].abs().max()) if mean.numel() else 0)
    assert sent_ever > 0 and (kept_ever > 0) == (name != "none")
