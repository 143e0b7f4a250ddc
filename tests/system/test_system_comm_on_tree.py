"""What communicators and the DDP hook do over one switch, over a tree of real P4 programs: the same tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from p4reduce.errors import CollectiveTimeoutError
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.wire.geometry import SMALL
from rigs import ranks
from rigs.pipeline import EPOCH
from rigs.tree_group import TreeGroup, TreeSwitch, tree_job
from worker.codecs import test_codecs_wire_formats as formats
from worker.comm import test_comm_collectives as collectives
from worker.comm import test_comm_refusals as refusals
from worker.compressors.test_methods import (
    test_means_are_equal_and_with_the_residues_make_up_the_gradients as means_and_residues,
)
from worker.ddp import test_ddp_nonfinite as nonfinite

DTYPES = (torch.float32, torch.bfloat16, torch.float16)

CASES: list[tuple[ModuleType, Callable[..., None], dict[str, Any]]] = [
    *[(formats, formats.test_a_communicator_sums_in_every_format, {"dtype": dtype, "lost": 0.1}) for dtype in DTYPES],
    (collectives, collectives.test_many_segments_in_one_collective, {}),
    (collectives, collectives.test_broadcast_moves_bits, {"root": 2}),
    (collectives, collectives.test_all_gather_of_unequal_bytes, {}),
    (collectives, collectives.test_a_mismatch_is_raised_on_every_rank_and_by_later_calls, {}),
    (refusals, refusals.test_ranks_that_skip_refused_steps_sum_equal_ones_over_empty_slots, {}),
    (refusals, refusals.test_a_refusal_at_another_operation_is_a_mismatch_on_every_rank, {}),
    *[
        (ranks, means_and_residues, {"name": name, "world_size": 4})
        for name in ("adacomp", "adacomp, sum", "adacomp, gather", "adacomp, shared", "quantize", "omnireduce")
    ],
    (nonfinite, nonfinite.test_a_skipped_step_is_skipped_by_all_and_changes_no_state, {"name": "adacomp"}),
]
"""What depends on what a switch adds, gathers and answers: formats, calls, refusals, and a compressor of each form."""


@pytest.mark.parametrize(("module", "test", "arguments"), CASES, ids=lambda given: getattr(given, "__name__", ""))
def test_over_two_racks(
    module: ModuleType, test: Callable[..., None], arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LocalGroup", TreeGroup)
    test(**arguments)


@pytest.mark.fault("an epoch granted twice for the same registers: STALE, and no rank gets a sum of the first job")
@pytest.mark.parametrize("since", ["nothing", "a job that used slot 0 only"])
def test_an_epoch_that_is_granted_twice_gives_no_old_sum(since: str) -> None:
    """Other slots hold rounds of the first job also where slot 0, whose opening round shows the call, does not."""
    job = tree_job(3, SMALL, 4, EPOCH)
    tree = job["switch"]
    assert isinstance(tree, TreeSwitch)

    def grant(first_round: int, slots: int, number: int, epoch: int = EPOCH, timeout_s: float = 60.0) -> list[int]:
        """Let a job whose ranks end without a word add `number` in one block of each column of four slots."""
        tree.tree.renew(epoch)
        leases = [replace(lease, first_round=first_round, slot_count=slots, epoch=epoch) for lease in job["leases"]]
        group = LocalGroup(3, switch=tree, leases=leases, timeout_s=timeout_s)
        try:
            return np.unique(group.run(lambda comm: comm.all_reduce(np.full(128, number, np.int32)))).tolist()
        finally:
            for comm in group.comms:
                comm.close(wait=False)

    assert grant(1 << 31, 4, 7) == [21]
    if since != "nothing":
        assert grant(5, 1, 9, EPOCH + 1) == [27]
    with pytest.raises(CollectiveTimeoutError):
        grant(77, 4, 1000, timeout_s=0.5)
    assert grant(77, 4, 1000, EPOCH + 2) == [3000]
