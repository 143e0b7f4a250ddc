"""Process groups that change their members: ranks are threads of this process, in its host's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from p4reduce.errors import JoinError
from p4reduce.launch import launch
from p4reduce.launch.launch import LaunchError, Told
from p4reduce.launch.processes import Processes, this_process
from p4reduce.pytorch.backend import group as backend
from p4reduce.pytorch.backend.group import RECONFIGURES, ProcessGroupP4Reduce
from p4reduce.pytorch.backend.members import Handle, claim, ordered, tell
from p4reduce.pytorch.backend.options import Options
from rigs.limits import LIMIT_S

LIMIT = timedelta(seconds=LIMIT_S)
needs_torch_2_14 = pytest.mark.skipif(not RECONFIGURES, reason="torch before 2.14 does not reconfigure groups")


class Members:
    """Groups that are members, or not yet, by their numbers."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.pool, self.store = pool, dist.HashStore()
        self.groups: dict[int, ProcessGroupP4Reduce] = {}
        self.uuid = 0

    def start(self, *numbers: int, options: Options | None = None) -> None:
        for number in numbers:
            self.groups[number] = ProcessGroupP4Reduce.over(
                self.store, number, number + 1, timeout=LIMIT, options=options, enable_reconfigure=True
            )

    def each(self, numbers: Sequence[int], call: Callable[[ProcessGroupP4Reduce], Any]) -> list[Any]:
        """Return what each of them returned or raised, all at once."""

        def one(number: int) -> Any:
            try:
                return call(self.groups[number])
            except RuntimeError as error:
                return error

        return list(self.pool.map(one, numbers))

    def reconfigure(
        self, *numbers: int, calls: Sequence[int] = (), uuid: int = 0, timeout: timedelta = LIMIT, kind: Any = list
    ) -> list[Any]:
        """Make these the members; `calls`: those that call it, all by default. Return their ranks, or errors."""
        self.uuid = uuid or self.uuid + 1
        opts = dist.distributed_c10d.ReconfigureOptions()
        opts.uuid, opts.timeout = self.uuid, timeout
        opts.handles = kind(self.groups[number].get_reconfigure_handle() for number in numbers)

        def call(group: ProcessGroupP4Reduce) -> int:
            assert group.reconfigure(opts).wait()
            return group.rank()

        return self.each(calls or numbers, call)

    def sums(self, *numbers: int) -> list[Any]:
        """Return each one's sum of 2 to the power of all numbers, or its error; each also gathers them over gloo."""

        def call(group: ProcessGroupP4Reduce) -> float:
            (number,) = (number for number in numbers if self.groups[number] is group)
            total = torch.full((5000,), 2.0**number)
            rows = [[torch.zeros(1) for _ in range(group.size())]]
            group.allreduce([total]).wait()
            group.allgather(rows, [torch.tensor([2.0**number])]).wait()
            assert sum(rows[0]) == total[0] == total[-1]
            return float(total[0])

        return self.each(numbers, call)


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> Iterator[Members]:
    monkeypatch.setenv("P4REDUCE_HOSTS", "on")
    monkeypatch.setattr(launch, "DEFAULT_CONTROLLER", "127.0.0.1:9")
    with ThreadPoolExecutor(4) as pool:
        made = Members(pool)
        yield made
        list(pool.map(ProcessGroupP4Reduce.shutdown, made.groups.values()))


@needs_torch_2_14
def test_members_join_leave_merge_and_part(members: Members) -> None:
    members.start(0, 1)
    (before,) = members.each([0], lambda group: group.allreduce([torch.ones(1)]))
    assert "call reconfigure first" in str(before)
    for numbers in ([0, 1], [0, 1, 2], [2, 0], [1, 2, 0], [3, 0, 1], [1], [1, 0, 2, 3]):  # some of torchft's own test
        members.start(*(number for number in numbers if number not in members.groups))
        assert members.reconfigure(*numbers) == list(range(len(numbers)))
        assert members.sums(*numbers) == [sum(2.0**number for number in numbers)] * len(numbers)
    for pair in ([3, 0], [1, 2]):
        assert members.reconfigure(*pair) == [0, 1]
    for pair in ([3, 0], [1, 2]):
        assert members.sums(*pair) == [2.0 ** pair[0] + 2.0 ** pair[1]] * 2
    assert sorted(members.reconfigure(0, 1, 2, 3, kind=set)) == [0, 1, 2, 3]
    assert members.sums(0, 1, 2, 3) == [15.0] * 4


@needs_torch_2_14
def test_members_in_no_order_keep_that_of_their_ranks(members: Members) -> None:
    members.start(0, 1, 2)
    assert members.reconfigure(2, 0, 1) == [0, 1, 2]
    members.start(3)
    assert members.reconfigure(3, 0, 1, 2, kind=set) == [3, 1, 2, 0]


@needs_torch_2_14
@pytest.mark.fault("a uuid is used twice, or a member does not call reconfigure: an error on all, the group goes on")
def test_a_reconfigure_that_does_not_begin_changes_nothing(members: Members) -> None:
    members.start(0, 1)
    members.reconfigure(0, 1)
    for error in members.reconfigure(0, 1, uuid=1):
        assert isinstance(error, dist.DistBackendError) and "the uuid 1 was already used" in str(error)
    members.start(2)
    short = timedelta(seconds=0.2)
    for error in members.reconfigure(1, 0, 2, uuid=2, calls=[0, 1], timeout=short):
        assert "timed out after 0.2 s: rank 2 did not reconfigure the group" in str(error)
    (error,) = members.reconfigure(2, 0, calls=[1])
    assert "the handle of this group is not among those given" in str(error)
    assert members.sums(0, 1) == [3.0, 3.0]
    assert members.reconfigure(0, 1, 2) == [0, 1, 2]
    assert members.sums(0, 1, 2) == [7.0] * 3


@needs_torch_2_14
@pytest.mark.fault("a member fails while the group is reconfigured: all its members have the error, and can try again")
def test_a_reconfigure_that_fails_leaves_all_members_in_one_state(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    members.start(0, 1, 2)
    members.reconfigure(0, 1)
    join = backend.join_job

    def fail(store: Any, rank: int, *others: Any, **how: Any) -> Any:
        if rank == 1:
            raise JoinError("out of order")
        return join(store, rank, *others, **how)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "join_job", fail)
        failed = members.reconfigure(0, 1, 2)
    assert [str(error).partition(": call")[0] for error in failed] == [
        "p4reduce:reconfigure failed: rank 1: out of order"
    ] * 3
    assert all("reconfigure failed: rank 1" in str(error) for error in members.sums(0, 1, 2))
    assert members.reconfigure(2, 0, 1) == [0, 1, 2]
    assert members.sums(2, 0, 1) == [7.0] * 3


@needs_torch_2_14
def test_an_aborted_group_is_reconfigured_and_calls_that_wait_end(members: Members) -> None:
    members.start(0, 1)
    members.reconfigure(0, 1)
    waiting = members.groups[0].allreduce([torch.ones(5000)])
    gathers = members.groups[0].allgather([[torch.zeros(1), torch.zeros(1)]], [torch.ones(1)])
    members.each([0, 1], ProcessGroupP4Reduce.abort)
    for work in (waiting, gathers):
        with pytest.raises(RuntimeError, match="was aborted|was closed"):
            work.wait()
    assert all("was aborted" in str(error) for error in members.sums(0, 1))
    assert members.reconfigure(1, 0) == [0, 1]
    assert members.sums(1, 0) == [3.0, 3.0]


@needs_torch_2_14
def test_residues_of_a_compressor_end_with_the_members(members: Members) -> None:
    members.start(0, 1, 2, options=Options(compressor="quantize"))

    def train(group: ProcessGroupP4Reduce) -> list[float]:
        weight = torch.nn.Parameter(torch.zeros(8000))
        found = []
        for _ in range(3):
            weight.grad = torch.ones(8000)
            group.allreduce([weight.grad]).wait()
            assert group._compressed is not None
            group._compressed.end_step()
            found.append(float(weight.grad.mean()))
        return found

    members.reconfigure(0, 1)
    assert members.each([0, 1], train) == [pytest.approx([2.0] * 3, rel=0.01)] * 2
    members.reconfigure(1, 0, 2)
    assert members.each([0, 1, 2], train) == [pytest.approx([3.0] * 3, rel=0.01)] * 3


@needs_torch_2_14
def test_torch_s_functions_and_the_backend_of_a_device_reach_the_group(members: Members) -> None:
    members.start(0)
    (group,) = members.groups.values()
    gloo = group._get_backend(torch.device("cpu"))
    assert group.supports_reconfigure and gloo.get_reconfigure_handle() == group.get_reconfigure_handle()
    opts = dist.distributed_c10d.ReconfigureOptions()
    opts.uuid, opts.handles = 5, [group.get_reconfigure_handle()]
    assert gloo.reconfigure(opts).wait() and (group.rank(), group.size()) == (0, 1)
    assert group.get_reconfigure_handle() not in opts.handles
    given = ProcessGroupP4Reduce.over(
        dist.HashStore(), 0, 1, timeout=LIMIT, options=Options(job="mine"), enable_reconfigure=True
    )
    assert not given.supports_reconfigure
    with pytest.raises(RuntimeError, match="the job 'mine' was given"):
        given.get_reconfigure_handle()


@pytest.mark.skipif(RECONFIGURES, reason="this torch reconfigures groups")
def test_older_versions_of_torch_say_what_is_missing() -> None:
    group = ProcessGroupP4Reduce.over(dist.HashStore(), 0, 1, timeout=LIMIT)
    assert not group.supports_reconfigure
    with pytest.raises(RuntimeError, match=r"does not reconfigure groups: 2\.14 does"):
        group.get_reconfigure_handle()


def test_handles_are_checked_and_ordered() -> None:
    old = [Handle(False, rank, f"token{rank}", "machine 7 12") for rank in range(3)]
    new = Handle.of_this_process(0, "another", is_new=True)
    texts = [str(each) for each in (new, *old)]
    assert ordered(texts, new) == [new, *old]
    assert ordered(frozenset(texts), old[1]) == [*old, new]
    for wrong, said in (
        (["gloo:0:-1:0:"], "is no reconfigure handle"),
        (["p4reduce:new:x:y:z"], "is no reconfigure handle"),
        (texts + texts[:1], "twice"),
        (texts[1:], "get it anew"),
    ):
        with pytest.raises(dist.DistBackendError, match=said):
            ordered(wrong, new)
    store = dist.HashStore()
    assert claim(store, 3, old) == claim(store, 3, old)
    with pytest.raises(dist.DistBackendError, match="the uuid 3 was already used"):
        claim(store, 3, old[1:])


def agreed(ranks: int, calls: int, timeout_s: float, error: str = "", ended: str = "") -> list[str]:
    """Return what each of so many ranks that call it got: "" where all agreed; rank 0 has the error."""
    store = tell(dist.HashStore(), [Handle(True, rank, str(rank), ended if rank == 2 else "") for rank in range(ranks)])

    def rank_main(rank: int) -> str:
        told = Told(store, timeout_s, Processes(store, rank, "meet"))
        try:
            with told.telling(rank, ranks, hear_s=0.0):
                if error and not rank:
                    raise OSError(error)
                told.agree(rank, ranks, "come")
        except LaunchError as raised:
            return str(raised)
        return ""

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(rank_main, range(calls)))


def test_ranks_agree_or_all_have_the_first_error() -> None:
    assert agreed(3, 3, LIMIT_S) == [""] * 3
    assert agreed(3, 3, LIMIT_S, error="no memory") == ["rank 0: no memory"] * 3
    assert agreed(3, 2, 0.1) == ["timed out after 0.1 s: rank 2 did not come"] * 2
    machine, pid, start = this_process().split()
    ended = f"{machine} {pid} {int(start) + 1}"
    assert agreed(3, 2, LIMIT_S, ended=ended) == ["rank 2: its process has ended"] * 2


def test_an_error_after_all_have_agreed_is_none() -> None:
    store = dist.HashStore()
    told = Told(store, LIMIT_S)
    with told.telling(0, 1):
        told.agree(0, 1, "come")
        raise OSError("too late")
    told.check()
