"""Whose link limits a dense sum, by given rates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest

from p4reduce.communicator import Communicator
from p4reduce.doctor import bottleneck
from p4reduce.doctor.bottleneck import Rates, host_tensors, limit_of_links, limit_of_slots, measure
from p4reduce.errors import JoinError
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from rigs.limits import LIMIT_S

APART = ((0,), (1,), (2,), (3,))
LINK = 100e6
ALIKE = (LINK,) * 4
NOWHERE = (0,) * 4
PLACEMENT = "or have a switch on each host, side by side"


@pytest.mark.parametrize(
    ("rates", "who", "times", "advice"),
    [
        (Rates(APART, 1, NOWHERE, ALIKE, LINK), "the hosts' links limit", "0.67", ""),
        (Rates(((0, 1), (2, 3)), 1, (0, 0), (LINK,) * 2, LINK / 2), "the hosts' links limit", "0.67", ""),
        (Rates(APART, 1, NOWHERE, ALIKE, LINK / 4), "a switch's link or processor limits", "2.7", "link 4 times as"),
        (Rates(APART, 2, NOWHERE, ALIKE, LINK / 2), "a switch's link or processor limits", "1.3", "link 2 times as"),
        (Rates(APART, 4, NOWHERE, ALIKE, LINK), "the hosts' links limit", "0.67", ""),
        (Rates(APART, 4, (1,) * 4, (4 / 3 * LINK,) * 4, LINK / 1.5), "the hosts' links limit", "1", ""),
        (Rates(APART, 4, (1,) * 4, (4 / 3 * LINK,) * 4, LINK / 9), "the hosts' processors limit", "6", "`--threads`"),
        (Rates(APART, 1, (1, 0, 0, 0), (9e9, *ALIKE[1:]), LINK / 3), "the link of rank 0 limits", "2", PLACEMENT),
        (Rates(APART, 1, NOWHERE, (9e9, LINK, 9e9, 9e9), LINK), "the link of rank 1 limits", "0.67", "(`ethtool`)"),
    ],
)
def test_the_limit_of_a_dense_sum(rates: Rates, who: str, times: str, advice: str) -> None:
    answer = limit_of_links(rates)
    assert (
        f" each way: {who} a dense sum, which takes {times} x as long as a ring over the hosts' links, with 1.5 x"
        in (answer.found)
    )
    assert advice in answer.advice and bool(advice) == bool(answer.advice), answer


def test_ranks_of_one_host_take_no_link() -> None:
    answer = limit_of_links(Rates(((0, 1),), 1, (1,), (3e9,), 2e9))
    assert answer == ("one rank alone 3 Gbit/s, all 2 at once 2 Gbit/s each way; all ranks are on one host", "")


@pytest.mark.parametrize(
    ("hosts", "switches", "beside", "tensors"), [(4, 1, 0, 1), (4, 1, 1, 3), (4, 4, 1, 1.5), (2, 2, 1, 1), (8, 2, 1, 4)]
)
def test_tensors_on_a_link(hosts: int, switches: int, beside: int, tensors: float) -> None:
    """With one host per switch, 2(H - 1)/H."""
    assert host_tensors(hosts, switches, beside) == tensors


def test_slots_limit_where_the_path_carries_more() -> None:
    lease = Lease(1, "job", 1, 0, 2, 128, 8, 32)
    answer = limit_of_slots(lease, 0.2e-3, 9.4e9)
    assert answer is not None
    said = "128 slots of 1,130 B are 5.79 Gbit/s at a round trip of 0.2 ms, one rank alone has 9.4 Gbit/s"
    assert answer == (said, "`p4reduce job create --slots 208`, or Options(slots=208) in the backend")
    assert limit_of_slots(replace(lease, slot_count=208), 0.2e-3, 9.4e9) is None
    assert limit_of_slots(lease, 0.0, 9.4e9) is None
    of_two = limit_of_slots(replace(lease, switches=(LeasedSwitch(), LeasedSwitch())), 0.2e-3, 9.4e9)
    assert of_two is not None and "--slots 104`" in of_two.advice, "each switch has so many"


def test_ranks_find_the_same_rates_at_all_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bottleneck, "_SUMS_S", 0.01)
    with LocalGroup(2, slots=4, switches=2) as group, LocalGroup(1, slots=4, switches=2) as single:
        alone = nullcontext(single.comms[0])
        one, other = group.run(lambda comm: measure(comm, ((0,), (1,)), lambda: alone, LIMIT_S))
    assert isinstance(one, Rates) and isinstance(other, Rates)
    assert replace(one, round_trip_s=0) == replace(other, round_trip_s=0)
    assert (one.switches, one.beside) == (2, (2, 2)) and min(*one.alone, one.together, one.round_trip_s) > 0


def test_all_ranks_learn_why_one_was_not_measured_alone() -> None:
    @contextmanager
    def alone() -> Iterator[Communicator]:
        raise JoinError("no room")
        yield

    with LocalGroup(2, slots=4) as group:
        found = group.run(lambda comm: measure(comm, ((0,), (1,)), alone, LIMIT_S))
    assert found == ["rank 0 alone: no room"] * 2
