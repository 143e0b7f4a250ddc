"""What communicators and the DDP hook do over one switch, over a tree of real P4 programs: the same tests."""

from __future__ import annotations

import itertools
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
from p4reduce_switch.program import PacketTrace
from rigs import ranks
from rigs.pipeline import EPOCH
from rigs.tree_group import TreeGroup, TreeSwitch, tree_job
from worker.codecs import test_codecs_wire_formats as formats
from worker.comm import test_comm_collectives as collectives
from worker.comm import test_comm_refusals as refusals
from worker.compressors import test_bad_input as bad_input
from worker.compressors import test_block_sparsifiers as sparsifiers
from worker.compressors import test_form_shared as form_shared
from worker.compressors import test_methods as methods
from worker.compressors import test_momentum as momentum
from worker.ddp import test_ddp_nonfinite as nonfinite

DTYPES = (torch.float32, torch.bfloat16, torch.float16)

CASES: list[tuple[ModuleType, Callable[..., None], dict[str, Any]]] = [
    *[(formats, formats.test_a_communicator_sums_in_every_format, {"dtype": dtype, "lost": 0.1}) for dtype in DTYPES],
    (collectives, collectives.test_many_segments_in_one_collective, {}),
    (collectives, collectives.test_broadcast_moves_bits, {"root": 2}),
    (collectives, collectives.test_all_gather_stacks, {}),
    (collectives, collectives.test_all_gather_of_unequal_bytes, {}),
    (collectives, collectives.test_a_mismatch_is_raised_on_every_rank_and_by_later_calls, {}),
    (collectives, collectives.test_calls_of_several_threads_take_turns, {}),
    (collectives, collectives.test_torch_tensors_in_torch_tensors_out, {}),
    (collectives, collectives.test_each_rank_may_give_another_kind_of_out, {"kind": np.int32}),
    (refusals, refusals.test_a_step_that_one_rank_skips_is_skipped_by_all, {}),
    (refusals, refusals.test_when_all_refuse_each_has_its_own_error, {}),
    (refusals, refusals.test_slots_opened_by_a_refused_collective_are_empty_in_the_next, {}),
    (refusals, refusals.test_a_refusal_at_another_operation_is_a_mismatch_on_every_rank, {}),
    *[
        (
            ranks,
            methods.test_means_are_equal_and_with_the_residues_make_up_the_gradients,
            {"name": name, "world_size": 4},
        )
        for name in ("adacomp", "adacomp, sum", "adacomp, gather", "adacomp, shared", "quantize")
    ],
    (
        ranks,
        form_shared.test_sums_and_residues_are_those_of_the_definition,
        {"method": "scalecom, b 0.1, 3 a chunk", "world_size": 5},
    ),
    (sparsifiers, sparsifiers.test_the_union_of_the_ranks_blocks_is_sent, {}),
    (momentum, momentum.test_a_step_that_is_refused_leaves_the_velocities_of_all_ranks, {}),
    *[
        (ranks, bad_input.test_gradients_of_16_bits_are_compressed_in_float32, {"name": name})
        for name in ("adacomp, sum", "scalecom", "quantize")
    ],
    (
        nonfinite,
        nonfinite.test_by_default_all_ranks_raise_in_that_bucket_and_the_communicator_stays_usable,
        {"bad_bucket": 1},
    ),
    *[
        (nonfinite, nonfinite.test_a_skipped_step_is_skipped_by_all_and_changes_no_state, {"name": name})
        for name in ("dense", "adacomp", "adacomp, shared", "scalecom, 32 bits", "omnireduce")
    ],
]


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


def test_sums_are_right_while_every_other_frame_is_traced() -> None:
    """The code that runs changes hundreds of times; both work on the same registers."""
    job = tree_job(4, SMALL, 4, EPOCH)
    changes: list[PacketTrace] = []
    switches = list(job["switch"].tree.switches.values())
    traced = switches[0].program.compiled.traced()
    for rig in switches:
        rig.program.trace_with(traced)
        plain, turn = rig.program.process, itertools.count()
        rig.program.process = lambda port, frame, plain=plain, turn=turn: plain(
            port, frame, *([changes.append] if next(turn) % 2 else [])
        )
    data = np.arange(4_000, dtype=np.int64).reshape(4, -1) % 1009
    with LocalGroup(4, geometry=SMALL, **job) as group:
        for _ in range(2):
            sums = group.run(lambda comm: comm.all_reduce(torch.from_numpy(data[comm.rank].astype(np.float32))))
            for found in sums:
                np.testing.assert_allclose(found.numpy(), data.sum(axis=0), rtol=1e-4)
    assert len(changes) > 200
