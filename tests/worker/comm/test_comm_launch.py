"""Telling one launch from another by what torchrun leaves in the environment."""

from __future__ import annotations

from p4reduce.membership.join import run_id

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "0",
}


def test_ranks_of_one_launch_agree_and_others_and_a_restart_differ() -> None:
    assert run_id({**TORCHRUN, "RANK": "0"}) == run_id({**TORCHRUN, "RANK": "1"}) == "none@127.0.0.1:29500 restart 0"
    others = ("TORCHELASTIC_RUN_ID", "x"), ("MASTER_PORT", "29501"), ("TORCHELASTIC_RESTART_COUNT", "1")
    assert len({run_id(TORCHRUN), *(run_id({**TORCHRUN, name: value}) for name, value in others)}) == 4
    assert run_id({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}) == "", "it is none of torchrun"
