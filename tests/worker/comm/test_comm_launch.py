"""Telling one launch from another by what torchrun leaves in the environment."""

from __future__ import annotations

from p4reduce.membership.join import run_id

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "0",
}


def test_ranks_of_one_launch_agree_whatever_their_rank_is() -> None:
    assert run_id({**TORCHRUN, "RANK": "0"}) == run_id({**TORCHRUN, "RANK": "1"}) == "none@127.0.0.1:29500 restart 0"


def test_another_launch_and_a_restart_are_others() -> None:
    others = [
        {**TORCHRUN, "TORCHELASTIC_RUN_ID": "x"},
        {**TORCHRUN, "MASTER_PORT": "29501"},
        {**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"},
    ]
    assert len({run_id(one) for one in (TORCHRUN, *others)}) == 4


def test_without_torchrun_there_is_no_launch() -> None:
    assert run_id({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}) == ""
