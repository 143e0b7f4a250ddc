"""The DDP hook on one rank: buckets, names, refusals and errors; how a DDPState ends, and goes on after a reset.

More ranks: tests/system/test_system_campaigns.py.
"""

import contextlib
import copy
import inspect
import io
import os
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.profiler import ProfilerActivity, profile

import p4reduce
from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Policy, Quantize
from p4reduce.errors import CollectiveTimeoutError, CommunicatorClosedError, InvalidTensorError, NotFiniteError
from p4reduce.pytorch.ddp import DDPState, ddp_hook
from p4reduce.testing.in_process import exchange_all
from p4reduce.testing.local_group import LocalGroup
from rigs.bits import bits
from rigs.buckets import Bucket, model_of, reduce_all
from rigs.cut_runs import ResettableGroup
from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S
from rigs.python_path import PYTHONPATH
from rigs.ranks import equal

NO_ERROR = contextlib.nullcontext()
pytestmark = pytest.mark.usefixtures("process_group")


class Net(nn.Module):
    """A convolution and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(4 * 36, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.conv(x).relu().flatten(1))


def net() -> Net:
    torch.manual_seed(1)
    return Net()


def data(seed: int) -> torch.Tensor:
    return torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def gradients(module: nn.Module) -> dict[str, torch.Tensor | None]:
    return {name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}


def step(model: nn.Module, seed: int = 0) -> None:
    model.zero_grad()
    model(data(seed).to(next(model.parameters()).dtype)).square().mean().backward()


def hooked(model: Any, comm: Communicator, *settings: Any, **options: Any) -> DDPState:
    """Return the state of a hook that the model has from now on."""
    state = DDPState(comm, *settings, **options)
    model.register_comm_hook(state, ddp_hook)
    return state


@pytest.mark.parametrize(
    ("options", "dtype", "error", "least"),
    [
        ({}, torch.float32, 1e-5, 1e-8),
        ({"gradient_as_bucket_view": True}, torch.float32, 1e-5, 1e-8),
        ({"bucket_cap_mb": 0.0005}, torch.float32, 1e-5, 1e-8),
        ({}, torch.bfloat16, 0.016, 1e-4),
    ],
)
def test_dense_gradients_are_those_of_backward(
    comm: Communicator, options: dict[str, Any], dtype: torch.dtype, error: float, least: float
) -> None:
    plain, model = net().to(dtype), DistributedDataParallel(net().to(dtype), **options)
    with hooked(model, comm):
        for seed in range(3):
            step(plain, seed)
            step(model, seed)
            for name, expected in gradients(plain).items():
                torch.testing.assert_close(gradients(model.module)[name], expected, rtol=error, atol=least)
    assert comm.stats.collectives > (5 if "bucket_cap_mb" in options else 3)  # one more is close()


def test_a_bucket_that_takes_several_collectives_has_the_bits_of_one(
    comm: Communicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, found = DistributedDataParallel(net()), []
    with hooked(model, comm):
        step(model)  # after which the bucket has another order
        for most in (1 << 27, 1024):
            monkeypatch.setattr("p4reduce.collectives.MOST_BYTES", most)
            before = comm.operations
            step(model, 1)
            found.append((bits(gradients(model)), comm.operations - before))
    assert found[0][0] == found[1][0] and (found[0][1], found[1][1]) == (1, 6)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of some versions of torch
def test_fsdp_is_told_what_to_do(comm: Communicator) -> None:
    of_one_rank = ShardingStrategy.NO_SHARD
    model = FullyShardedDataParallel(net(), sharding_strategy=of_one_rank, device_id=torch.device("cpu"))
    with hooked(model, comm) as state:
        with pytest.raises(TypeError, match="not of FullyShardedDataParallel: register none there"):
            step(model)
        with pytest.raises(TypeError, match="not of FullyShardedDataParallel"):
            ddp_hook(state, torch.ones(8), torch.ones(4))  # as of several ranks


def test_the_state_of_a_parameter_survives_the_rebuilding_of_buckets(comm: Communicator) -> None:
    compressor, alone = AdaComp(form="sum"), AdaComp(form="sum")
    plain, model = net(), DistributedDataParallel(net(), bucket_cap_mb=0.0005)
    counts: list[int] = []
    with DDPState(comm, compressor, module=model) as state:

        def counting(state: DDPState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            counts[-1] += 1
            return ddp_hook(state, bucket)

        model.register_comm_hook(state, counting)
        for seed in range(4):
            counts.append(0)
            step(model, seed)
            step(plain, seed)
            given = {name: gradient for name, gradient in gradients(plain).items() if gradient is not None}
            assert len(given) == 4
            (outcome,) = exchange_all([alone], [given], [comm.lease])
            for name, expected in outcome.means.items():
                torch.testing.assert_close(gradients(model.module)[name], expected, rtol=1e-4, atol=1e-7)
            assert [set(report.forms) for report in state.reports].count(set()) < len(state.reports) == counts[-1]
    assert len(set(counts)) == 2 and counts[0] == 1, "DDP did not rebuild its buckets: the test tests nothing"
    assert set(compressor.state_dict()["residues"]) == {"conv.weight", "fc.weight"}


def test_collectives_wait_as_long_as_those_of_torch() -> None:
    torch_s = dist.constants.default_pg_timeout.total_seconds()
    for function in (p4reduce.join, Communicator):
        parameters = inspect.signature(function).parameters
        name = "collective_timeout_s" if "collective_timeout_s" in parameters else "timeout_s"
        assert parameters[name].default == torch_s, function


def test_channels_last_gradients(comm: Communicator) -> None:
    def make() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)).to(memory_format=torch.channels_last)

    plain, model = make(), DistributedDataParallel(make())
    with hooked(model, comm, AdaComp(Policy(conv=1)), module=model):  # every element is its bin's largest
        step(plain)
        step(model)
        expected, sent = gradients(plain)["1.weight"], gradients(model.module)["1.weight"]
        assert expected is not None and sent is not None
        assert torch.equal(sent.sign(), expected.sign())


class Sparse(nn.Module):
    """A table whose gradient is sparse, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.table, self.fc = nn.Embedding(50, 8, sparse=True), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.table(x))


@pytest.mark.parametrize("compressor", [None, Quantize(16)])
def test_a_sparse_gradient_that_is_not_finite_is_refused_or_skipped(
    comm: Communicator, compressor: Quantize | None
) -> None:
    for on_nonfinite in ("skip", "raise"):
        model = DistributedDataParallel(Sparse())
        with hooked(model, comm, compressor, module=model, on_nonfinite=on_nonfinite) as state:
            model(torch.arange(6)).sum().backward()
            assert (
                model.module.table.weight.grad.is_sparse and model.module.table.weight.grad._values().isfinite().all()
            )
            model.zero_grad()
            loss = model(torch.arange(6)).sum() * float("inf")
            with pytest.raises(NotFiniteError, match="gradient of .*weight") if on_nonfinite == "raise" else NO_ERROR:
                loss.backward()
            assert state.skipped_steps == (on_nonfinite == "skip")


def test_a_skipped_sparse_bucket_is_nan_after_its_sum_too(comm: Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late:
        """A sum that is written when it is waited for."""

        def __init__(self, given: torch.Tensor, **_: object) -> None:
            self.given, self.waited = given, False
            begun.append(self)

        def wait(self) -> None:
            self.given._values().fill_(1.0)
            self.waited = True

    begun: list[Late] = []
    model = DistributedDataParallel(Sparse(), bucket_cap_mb=1e-4)
    monkeypatch.setattr("p4reduce.pytorch.ddp.dist.all_reduce", Late)
    with hooked(model, comm, module=model, on_nonfinite="skip"):
        (model(torch.arange(6)).sum() * float("inf")).backward()
    assert [work.waited for work in begun] == [True]
    assert model.module.table.weight.grad._values().isnan().all()


def test_a_model_with_the_hook_is_copied_and_saved_without_its_connection(
    comm: Communicator, caplog: pytest.LogCaptureFixture
) -> None:
    compressor = AdaComp(form="sum")
    model, saved = DistributedDataParallel(net()), io.BytesIO()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with hooked(model, comm, compressor, module=model, optimizer=optimizer) as state:
        step(model)
        average = AveragedModel(model)
        step(model)
        average.update_parameters(model)
        torch.save(model, saved)
        saved.seek(0)
        for copied in (lambda: copy.deepcopy(model), lambda: torch.load(saved, weights_only=False)):
            ((module, other),) = [(made.module, made._comm_hooks[0][1]) for made in [copied()]]
            assert "wrap its module anew, model.module, and register a new DDPState" in caplog.records[-1].message
            assert equal(other.state_dict(), state.state_dict()) and other.compressor is not compressor
            with pytest.raises(CommunicatorClosedError, match="wrap its module anew"):
                ddp_hook(other, None)  # type: ignore[arg-type]
            other.close()
            again = DistributedDataParallel(module)
            with hooked(again, comm, other.compressor, module=again):
                step(again)
        step(model)
    average.module(data(0))


def test_a_policy_of_names_reads_the_module_and_needs_it(comm: Communicator) -> None:
    policy = Policy(names=[("fc.*", "dense")])
    with pytest.raises(ValueError, match="policy names parameters: give DDPState module=model"):
        DDPState(comm, AdaComp(policy))
    model = DistributedDataParallel(net())
    with hooked(model, comm, AdaComp(policy), module=model) as state:
        step(model)
        assert [set(report.forms) for report in state.reports] == [{"conv.weight"}]


def test_names_without_a_module(comm: Communicator) -> None:
    compressor = AdaComp()
    model = DistributedDataParallel(net())
    with hooked(model, comm, compressor):
        step(model)
        step(model)
    assert len(compressor.state_dict()["residues"]) == 2
    assert all(name.startswith("parameter") for name in compressor.state_dict()["residues"])


def test_an_error_in_any_bucket_is_raised_in_backward_as_it_is() -> None:
    lost = threading.Event()
    group = LocalGroup(1, lose=lambda rank, frame: lost.is_set())
    model = DistributedDataParallel(net(), bucket_cap_mb=0.0005)
    state = hooked(model, group.comms[0])
    step(model)
    lost.set()
    group.comms[0].timeout_s = 0.3
    with pytest.raises(CollectiveTimeoutError) as caught:
        step(model)
    assert ["join again" in note for note in caught.value.__notes__] == [True]
    assert isinstance(state.error, CollectiveTimeoutError)
    state.close()
    state.close()
    with contextlib.suppress(CollectiveTimeoutError):
        group.__exit__(ValueError, None, None)


def test_a_closed_state_refuses_to_work(comm: Communicator) -> None:
    model = DistributedDataParallel(net())
    state = hooked(model, comm)
    step(model)
    state.close()
    with pytest.raises(CommunicatorClosedError, match="DDPState was closed"):
        step(model)
    comm.barrier()


def test_a_process_group_of_another_size_is_refused() -> None:
    with LocalGroup(2) as group, pytest.raises(ValueError, match="job has 2 ranks, the model's process group 1"):
        DDPState(group.comms[0], module=DistributedDataParallel(net()))


TWO = {"one": (60, 50), "other": (60, 50)}
GIVEN = torch.randn(2, 60, 50, generator=torch.Generator().manual_seed(1))


def test_the_threads_of_the_hook_have_ranges_in_a_profile(comm: Communicator) -> None:
    try:
        of_all_threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        pytest.skip("this torch profiles the thread alone that starts the profiler")
    with DDPState(comm, AdaComp()) as state:
        weights = model_of(TWO)
        with profile(activities=[ProfilerActivity.CPU], experimental_config=of_all_threads) as profiled:
            reduce_all(state, [*weights.parameters()], [*GIVEN])
    counts = {event.key: event.count for event in profiled.key_averages()}
    assert counts["p4reduce:compress"] == counts["p4reduce:bucket"] == 2


def bucket(*, last: bool = True) -> Any:
    return Bucket(0, nn.Parameter(torch.ones(3)), torch.ones(3), last=last)


def test_closing_a_state_leaves_the_communicator_open(comm: Communicator) -> None:
    comm.failure.membership = membership = Mock(failure=lambda: None)
    with DDPState(comm):
        pass
    with contextlib.suppress(ValueError), DDPState(comm):
        raise ValueError  # no bucket is under way, so the other ranks wait for none
    comm.barrier()
    membership.leave.assert_not_called()


@pytest.mark.fault(
    "an exception (or Ctrl-C) between the buckets of a step: the `with` block ends without waiting for a bucket"
)
@pytest.mark.parametrize("kind", [ValueError, InvalidTensorError, KeyboardInterrupt])
def test_an_exception_while_a_bucket_is_under_way_leaves_the_job_at_once(kind: type[BaseException]) -> None:
    lost = threading.Event()
    group = LocalGroup(1, timeout_s=LIMIT_S, lose=lambda rank, frame: lost.is_set())
    comm, membership = group.comms[0], Mock(failure=lambda: None)
    comm.failure.membership = membership
    with contextlib.suppress(kind), DDPState(comm) as state:
        lost.set()
        state.reduce(bucket(last=False))
        raise kind
    assert isinstance(state.error, kind), "not the timeout of the bucket"
    membership.leave.assert_called_once()


def test_the_end_of_the_interpreter_leaves_the_job(torch_server: ForkServer, tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("ends_without_close.py"))
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    ends = {"finished": 0, "in-function": 0, "joined-only": 0, "forgotten": 0, "raised": 1}
    with contextlib.ExitStack() as stack:
        for how in ends:
            started = torch_server.start(tmp_path / how, script, how, environment=environment, folder=tmp_path)
            stack.callback(started.close)
            ends[how] -= started.wait(LIMIT_S)
    for how, wrong in ends.items():
        text = (tmp_path / how).read_text()
        assert not wrong, text
        assert [line for line in text.splitlines() if line in ("working", "left")] == ["working", "left"], text
        assert ("ValueError: of the user" in text) == (how == "raised")


def train(reset_at: set[int]) -> list[Any]:
    """Return the weights and the compressor's state after six steps of two buckets, some of them after a reset."""
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 4)), bucket_cap_mb=0.0005)
    compressor, optimizer = AdaComp(momentum=0.5), torch.optim.SGD(model.parameters(), 0.1, 0.9)
    with ResettableGroup(1) as group, hooked(model, group.comms[0], compressor, module=model):
        for step in range(6):
            if step in reset_at:
                group.reset()
            optimizer.zero_grad()
            model(torch.randn(8, 20, generator=torch.Generator().manual_seed(step))).square().mean().backward()
            optimizer.step()
    return [dict(model.module.state_dict()), compressor.state_dict()]


def test_weights_and_residues_are_those_of_an_undisturbed_run() -> None:
    assert equal(train({2, 4}), train(set()))
