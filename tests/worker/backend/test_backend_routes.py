"""The choice between the switch and gloo for large copies."""

from __future__ import annotations

import pytest

from p4reduce.communicator import Communicator
from p4reduce.pytorch.backend.options import Options
from p4reduce.pytorch.backend.routes import TRIALS, Routes
from p4reduce.testing.local_group import LocalGroup

RANKS = 3


def ways(comm: Communicator, gloo_s: list[float], switch_s: list[float]) -> list[str]:
    """Return the ways of calls that take this long on this rank."""
    now_s = 0.0
    routes = Routes(lambda: now_s)

    def take(way: str, seconds: float) -> str:
        nonlocal now_s
        now_s += seconds
        return way

    def call(gloo_s: float, switch_s: float) -> str:
        over_switch, over_gloo = lambda: take("switch", switch_s), lambda: take("gloo", gloo_s)
        return routes.run(comm, "broadcast", 4096, over_switch, over_gloo, 60)

    trials = [call(*seconds) for seconds in zip(gloo_s, switch_s, strict=True) for _ in range(2)]
    return trials + [call(0, 0) for _ in range(2)]


@pytest.mark.parametrize(
    ("slowest_gloo_s", "chosen"),
    [([9.0, 2.0], "gloo"), ([9.0, 4.0], "switch")],  # the switch takes 3 s on rank 1 and 1 s elsewhere
)
def test_all_ranks_choose_what_is_faster_on_the_slowest(slowest_gloo_s: list[float], chosen: str) -> None:
    with LocalGroup(RANKS) as group:
        found = group.run(
            lambda comm: ways(
                comm, slowest_gloo_s if comm.rank == 2 else [0.1, 0.1], [3.0, 3.5] if comm.rank == 1 else [1.0, 1.0]
            )
        )
    assert found == [["gloo", "switch"] * TRIALS + [chosen] * 2] * RANKS


def test_a_number_of_bytes_in_the_environment_or_the_options_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Options().least_gather_bytes() is None
    monkeypatch.setenv("P4REDUCE_GATHER_BYTES", "4096")
    assert Options().least_gather_bytes() == 4096
    assert Options(gather_bytes=7).least_gather_bytes() == 7
    monkeypatch.setenv("P4REDUCE_GATHER_BYTES", "1 MiB")
    with pytest.raises(ValueError, match="P4REDUCE_GATHER_BYTES is '1 MiB'"):
        Options().least_gather_bytes()
