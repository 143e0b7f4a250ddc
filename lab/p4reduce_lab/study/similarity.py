"""The similarity of the learners' largest elements, on which ScaleCom's choice by one leader relies."""

from __future__ import annotations

from collections.abc import Sequence

import torch

LEADING = 0.01
"""The share of elements, the largest in magnitude, that count as leading."""


def leading_cosine(learners: Sequence[torch.Tensor]) -> float:
    """Return the mean cosine between a leader and another learner at the leader's leading elements.

    `learners`: float32 [elements] of each rank. Every rank leads once, against every other.
    """
    cosines = []
    for leader in learners:
        places = leader.abs().topk(max(1, round(LEADING * leader.numel()))).indices
        ours = leader[places]
        cosines += [torch.cosine_similarity(ours, other[places], dim=0) for other in learners if other is not leader]
    return float(torch.stack(cosines).mean())
