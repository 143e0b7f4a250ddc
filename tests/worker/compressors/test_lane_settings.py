"""The width of a job's lanes: used, and refused before anything is sent where it is too narrow."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.compressors.forms import lane_width
from p4reduce.errors import InvalidTensorError, LaneOverflowError
from p4reduce.testing.local_group import LocalGroup
from rigs.ranks import gradients_of, group, residue_of


def exchange(local: LocalGroup, bits: int, compressors: list[AdaComp]) -> list[tuple[torch.Tensor, int]]:
    """(mean, bytes up) of three steps, with lanes of `bits` bits."""
    for comm in local.comms:
        comm._connection.lease = replace(comm.lease, lane_bits=bits)

    def rank_main(comm: Communicator) -> tuple[torch.Tensor, int]:
        for step in range(3):
            outcome, report = all_reduce_compressed(comm, compressors[comm.rank], gradients_of(comm.rank, step))
        return outcome.means["fc.weight"], report.bytes_up

    return local.run(rank_main)


def test_the_jobs_lanes_are_used() -> None:
    """Whatever their width, the sums are the same; the bytes are not."""
    found = {}
    for bits in (0, 4, 8, 16, 32):
        compressors = [AdaComp(form="sum") for _ in range(3)]
        with LocalGroup(3) as local:
            found[bits] = exchange(local, bits, compressors)
        assert all(torch.equal(mean, found[0][0][0]) for mean, _ in found[bits])
        assert lane_width(1, group(0, 3, lane_bits=bits), "adacomp") == (bits or 4)
    chosen, *sizes = [min(size for _, size in found[bits]) for bits in (0, 4, 8, 16, 32)]  # one rank may repeat a frame
    assert chosen == sizes[0] < sizes[1] < sizes[2] < sizes[3]


@pytest.mark.parametrize(("ranks", "bits", "levels"), [(8, 4, 1), (4, 4, 2), (4, 8, 32)])
def test_lanes_that_are_too_narrow_are_refused_for_the_forms_that_need_them(ranks: int, bits: int, levels: int) -> None:
    narrow = group(0, ranks, lane_bits=bits, lane_bound=levels)
    for form in ("sum", "auto"):
        with pytest.raises(LaneOverflowError, match=f"adacomp in job 'test': {ranks} ranks .* a lane of {bits} bits"):
            AdaComp(form=form, levels=levels).check(narrow)
        AdaComp(form=form, levels=levels).check(replace(narrow, lane_bits=0))
        if levels > 1:
            AdaComp(form=form, levels=levels - 1).check(narrow)
    with LocalGroup(ranks) as local:
        for form in ("gather", "shared"):
            compressors = [AdaComp(form=form, levels=levels) for _ in range(ranks)]
            compressors[0].check(narrow)
            assert exchange(local, bits, compressors)[0][0].any()
            assert residue_of(compressors[0], "fc.weight").any()


def test_more_levels_than_the_job_was_created_for_are_refused() -> None:
    """Where the job states a width or a bound: else the workers choose a width that fits."""
    for job in (group(0, 4, lane_bits=8), group(0, 4, lane_bound=2), group(0, 4, lane_bits=8, lane_bound=2)):
        with pytest.raises(
            LaneOverflowError, match="integers up to 3, and job 'test' was created for .* --lane-bound 3"
        ):
            AdaComp(levels=3).check(job)
    AdaComp(levels=3).check(group(0, 4, lane_bound=3))
    AdaComp(levels=3).check(group(0, 4, lane_bits=8, lane_bound=3))
    AdaComp(levels=3).check(group(0, 4))


def test_a_width_that_no_lane_has_is_refused() -> None:
    with pytest.raises(InvalidTensorError, match="lanes are 4, 5, 6, 8, 10, 16 or 32 bits wide, not 7"):
        AdaComp().check(group(0, 2, lane_bits=7))
