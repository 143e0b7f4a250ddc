"""Staging of tensors on a device: every call that orders copies is needed, and copies overlap with sums."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from p4reduce.collective_queue import CollectiveQueue
from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Policy
from p4reduce.errors import CollectiveTimeoutError, InvalidTensorError
from p4reduce.pytorch import staging
from p4reduce.pytorch.backend.work import CollectiveWork
from p4reduce.pytorch.ddp import DDPState
from p4reduce.pytorch.staging import OnDevice, stage
from p4reduce.testing.local_group import LocalGroup
from rigs.buckets import Bucket, model_of, reduce_all
from rigs.limits import LIMIT_S
from rigs.simulated_accelerator import Schedule, SimulatedAccelerator

SCHEDULES: list[Schedule] = ["lazy", "eager", *range(8)]
META = torch.device("meta")
GIVEN = torch.arange(12.0).reshape(3, 4)

Use = Callable[[SimulatedAccelerator, torch.Tensor], Any]


@pytest.fixture(params=SCHEDULES)
def accelerator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimulatedAccelerator:
    made = SimulatedAccelerator(request.param)
    monkeypatch.setitem(staging.ACCELERATORS, "meta", lambda: made)
    return made


def double(accelerator: SimulatedAccelerator, tensor: torch.Tensor) -> OnDevice:
    """Double a tensor on the host."""
    staged = OnDevice(accelerator, META, [tensor], [tensor])
    staged.arrive(LIMIT_S)
    staged.writes[0].mul_(2)
    staged.give_back()
    return staged


def by_wait(accelerator: SimulatedAccelerator, tensor: torch.Tensor) -> None:
    double(accelerator, tensor).wait()


def by_future(accelerator: SimulatedAccelerator, tensor: torch.Tensor) -> None:
    staged = double(accelerator, tensor)
    future = staged.future()
    staged.complete(future, tensor)
    future.wait()


def by_a_future_s_callback(accelerator: SimulatedAccelerator, tensor: torch.Tensor) -> None:
    staged = double(accelerator, tensor)
    future = staged.future()
    child = future.then(lambda done: done.value())
    staged.complete(future, tensor)
    child.wait()


def in_a_block(accelerator: SimulatedAccelerator, tensor: torch.Tensor) -> None:
    """Give the result in a block, as another library does whose result is on the device already."""
    staged = OnDevice(accelerator, META, [], [])
    with staged.writing([tensor]):
        accelerator.copy(tensor, 2 * GIVEN)
    staged.wait()


TO_HOST_AND_BACK = ["record", "wait", "keep", "record", "query", "keep", "record"]
TWICE = {5: "keep"}
"""The step that may be missing: the tensor was read before, and is kept for the side stream already."""
OF_ITS_OWN = {6: "record"}
"""The step that may be missing: a future has an event of its own."""
NOTHING_ARRIVES = {2: "record"}
USES: list[tuple[Use, list[str], dict[int, str]]] = [
    (by_wait, [*TO_HOST_AND_BACK, "wait"], TWICE),
    (by_future, [*TO_HOST_AND_BACK, "record", "wait"], TWICE | OF_ITS_OWN),
    (by_a_future_s_callback, [*TO_HOST_AND_BACK, "record", "wait", "record", "wait"], TWICE | OF_ITS_OWN),
    (in_a_block, ["record", "wait", "record", "keep", "record", "wait"], NOTHING_ARRIVES),
]
"""Uses, each with the calls that order its copies, and those of them that it could do without."""


def goes_wrong(schedule: Schedule, use: Use, forget: int | None) -> bool:
    accelerator = SimulatedAccelerator(schedule, forget)
    tensor = accelerator.tensor(GIVEN)
    try:
        use(accelerator, tensor)
        return not torch.equal(accelerator.read(tensor), 2 * GIVEN)
    except AssertionError as error:
        assert "may be used again" in str(error)
        return True


@pytest.mark.parametrize(("use", "calls", "needless"), USES)
def test_each_call_that_orders_copies_is_needed(use: Use, calls: list[str], needless: dict[int, str]) -> None:
    schedules: list[Schedule] = [*SCHEDULES, *range(8, 60)]
    assert not any(goes_wrong(schedule, use, None) for schedule in schedules)
    counting = SimulatedAccelerator()
    use(counting, counting.tensor(GIVEN))
    assert counting.calls == calls
    for number, call in enumerate(calls):
        wrong = any(goes_wrong(schedule, use, number) for schedule in schedules)
        assert wrong != (needless.get(number) == call), f"{call}, call {number} of {calls}"


def test_copies_and_sums_of_three_tensors_overlap() -> None:
    accelerator = SimulatedAccelerator("lazy")
    tensors = [accelerator.tensor(GIVEN + each) for each in range(3)]
    first, second, third = (OnDevice(accelerator, META, [tensor], [tensor]) for tensor in tensors)
    first.arrive(LIMIT_S)
    first.writes[0].mul_(2)
    first.give_back()
    second.arrive(LIMIT_S)
    assert accelerator._of(tensors[0]).equal(GIVEN), "the host waited for the first copy back"
    assert third.reads[0].equal(torch.full_like(GIVEN, 99)), "the host waited for the third copy to it"
    second.writes[0].mul_(2)  # while the second is summed,
    third.arrive(LIMIT_S)  # the third arrives
    assert third.reads[0].equal(GIVEN + 2)
    first.wait()
    assert accelerator.read(tensors[0]).equal(2 * GIVEN), "and the first goes back"
    for staged, tensor, added in ((second, tensors[1], 1), (third, tensors[2], 2)):
        staged.give_back()
        staged.wait()
        assert accelerator.read(tensor).equal((GIVEN + added) * (2 if staged is second else 1))


def test_a_device_that_hangs_ends_in_a_timeout() -> None:
    accelerator = SimulatedAccelerator("lazy")
    staged = OnDevice(accelerator, META, [accelerator.tensor(GIVEN)], [])
    accelerator.hangs = True
    with pytest.raises(CollectiveTimeoutError, match="not copied to the host within 0.01 s"):
        staged.arrive(0.01)


def test_tensors_on_the_host_are_not_copied() -> None:
    staged = stage(GIVEN.device, [GIVEN], [GIVEN])
    assert staged.reads[0] is GIVEN and staged.writes[0] is GIVEN


# The hook


RANKS, STEPS = 2, 3
NAMES = ("first", "second", "third")


def means_of(
    comm: Communicator, given: torch.Tensor, accelerator: SimulatedAccelerator | None, **options: Any
) -> torch.Tensor:
    """Return the mean of each step and bucket, as an operation after the backward pass finds it."""
    model, means = model_of(dict.fromkeys(NAMES, (30, 21))), []
    with DDPState(comm, module=model, **options) as state:
        for step in given[comm.rank]:
            tensors = [row.clone() if accelerator is None else accelerator.tensor(row) for row in step]
            for mean in reduce_all(state, model.parameters(), tensors):
                means.append((mean if accelerator is None else accelerator.read(mean)).reshape(30, 21))
    return torch.stack(means)


@pytest.fixture(scope="module")
def given() -> torch.Tensor:
    return torch.randn(RANKS, STEPS, len(NAMES), 30, 21, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def wanted(given: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    with LocalGroup(RANKS) as group:
        dense = group.run(lambda comm: means_of(comm, given, None))[0]
    with LocalGroup(RANKS) as group:
        compressed = group.run(lambda comm: means_of(comm, given, None, compressor=AdaComp(Policy(linear=50))))[0]
    yield [dense, compressed]


@pytest.mark.parametrize("compressed", [False, True])
def test_the_hook_gives_a_device_s_gradients_the_same_means(
    accelerator: SimulatedAccelerator, given: torch.Tensor, wanted: list[torch.Tensor], compressed: bool
) -> None:
    def rank_main(comm: Communicator) -> torch.Tensor:
        options = {"compressor": AdaComp(Policy(linear=50))} if compressed else {}
        return means_of(comm, given, accelerator, **options)

    with LocalGroup(RANKS) as group:
        for means in group.run(rank_main):
            assert torch.equal(means, wanted[compressed])


def test_a_skipped_step_is_nan_on_the_device(accelerator: SimulatedAccelerator, given: torch.Tensor) -> None:
    bad = given.clone()
    bad[1, 1, 1, 3, 3] = torch.inf

    with LocalGroup(RANKS) as group:
        for means in group.run(lambda comm: means_of(comm, bad, accelerator, on_nonfinite="skip")):
            finite = means.reshape(STEPS, len(NAMES), -1).isfinite().all(-1)
            assert finite.tolist() == [[True] * 3, [True, False, False], [True] * 3]


def test_a_device_that_is_not_known_is_refused(comm: Communicator) -> None:
    with DDPState(comm) as state:
        bucket = Bucket(0, torch.nn.Parameter(torch.zeros(2)), torch.zeros(2, device="meta"), last=True)
        with pytest.raises(InvalidTensorError, match="on meta; p4reduce's hook takes models on the CPU and on CUDA"):
            state.reduce(bucket)  # type: ignore[arg-type]


def test_a_device_without_memory_ends_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(SimulatedAccelerator):
        def host_like(self, tensor: torch.Tensor) -> torch.Tensor:
            raise torch.OutOfMemoryError("no pinned memory")

    full = Full()
    monkeypatch.setitem(staging.ACCELERATORS, "meta", lambda: full)
    group = LocalGroup(1)
    state = DDPState(group.comms[0])
    with pytest.raises(torch.OutOfMemoryError):
        state.reduce(Bucket(0, torch.nn.Parameter(torch.zeros(2)), full.tensor(torch.zeros(2)), last=True))  # type: ignore[arg-type]
    assert isinstance(state.error, torch.OutOfMemoryError)
    state.close()


def test_a_future_that_the_device_cannot_complete_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no end of the thread that would have completed the later ones."""
    accelerator = SimulatedAccelerator()
    monkeypatch.setitem(staging.ACCELERATORS, "meta", lambda: accelerator)
    monkeypatch.setattr(OnDevice, "complete", Mock(side_effect=RuntimeError("the device is lost")))
    tensors = [accelerator.tensor(torch.ones(40)) for _ in range(2)]

    def raised(call: Callable[[], object]) -> str:
        told: list[str] = []

        def run() -> None:
            with pytest.raises(RuntimeError) as caught:
                call()
            told.append(str(caught.value))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "it waits for a thread that has ended"
        return told[0]

    work = CollectiveWork("sum", tensors, stage(META, [], []), CollectiveQueue().submit(lambda: None))
    assert "the device is lost" in raised(work.get_future().wait) and isinstance(work.exception(), RuntimeError)
    with LocalGroup(1) as group:
        state = DDPState(group.comms[0])
        assert "the device is lost" in raised(lambda: reduce_all(state, tensors, tensors))
        group.comms[0].close(wait=False)
