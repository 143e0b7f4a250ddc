"""Which ranks share a host, and the memory that they map. The test of processes starts this file as each rank."""

from __future__ import annotations

import mmap
import os
import platform
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import p4reduce
from p4reduce.codecs.arrays import address
from p4reduce.compressors import NoCompression
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.errors import CollectiveError, CollectiveTimeoutError, JobResetError
from p4reduce.paths.hosts import memory
from p4reduce.paths.hosts.find import Hosts, host_key, why_alone
from p4reduce.paths.hosts.memory import HostMemory, MemoryFile
from p4reduce.paths.hosts.plan import group_of, make_plan, span_of
from p4reduce.paths.hosts.state import DATA_WORDS
from p4reduce.protocol.fence import fence
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_runtime.settings import ConfigError
from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S
from rigs.local_system import local_system
from rigs.python_path import PYTHONPATH
from rigs.system import System


def test_plans() -> None:
    assert make_plan(["a", "b", "c"]) is None
    even = make_plan(list("abab"))
    assert even is not None and even.hosts == ((0, 2), (1, 3)) and even.shards == 2 and even.uses_switch
    assert [even.shard_of(rank) for rank in range(4)] == [0, 0, 1, 1]
    assert [even.host_of(rank) for rank in range(4)] == [0, 1, 0, 1]
    uneven = make_plan(list("abbbb"))
    assert uneven is not None and uneven.shards == 1
    assert [uneven.shard_of(rank) for rank in range(5)] == [0, 0, None, None, None]
    one = make_plan(list("aaaa"))
    assert one is not None and one.shards == 4 and not one.uses_switch
    racks = make_plan([f"host {rank // 8}" for rank in range(1024)])
    assert racks is not None and len(racks.hosts) == 128 and racks.shards == 8
    assert [len(group_of(rank, ["a", "b"] * 65)) for rank in (0, 1, 126, 127, 128, 129)] == [64, 64, 64, 64, 1, 1]
    assert group_of(129, ["a", "b"] * 65) == (129,) and group_of(3, list("abab")) == (1, 3)


def test_shards_divide_the_slots_of_each_switch_among_them() -> None:
    jobs, plan, switches = Mock(), make_plan(list("abab")), tuple(LeasedSwitch(port=port) for port in (1, 2, 3))
    assert plan is not None
    Hosts(jobs)._create(jobs, plan, Lease(1, "train", 1, 0, 4, 3 * 64, 4, 8, switches=switches))
    assert jobs.create.call_args.args == ("train", 2, 2, 32)


def test_spans_divide_all_blocks() -> None:
    for blocks in (0, 1, 7, 100):
        spans = [span_of(shard, 3, blocks) for shard in range(3)]
        assert spans[0][0] == 0 and spans[-1][1] == blocks
        assert all(before[1] == after[0] for before, after in zip(spans, spans[1:], strict=False))


def test_keys_of_hosts() -> None:
    assert host_key({"P4REDUCE_HOSTID": "left"}) == "id left" != host_key({"P4REDUCE_HOSTID": "right"})
    assert host_key({}) == host_key({}) and "boot" in host_key({})


def test_a_rank_says_why_it_shares_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_alone({}) == why_alone({"P4REDUCE_HOSTS": "on"}) == ""
    assert why_alone({"P4REDUCE_HOSTS": "off"}) == "P4REDUCE_HOSTS is off"
    with pytest.raises(ConfigError, match="P4REDUCE_HOSTS is 'no'; it has to be on or off"):
        why_alone({"P4REDUCE_HOSTS": "no"})
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert why_alone({}) == "its processor is riscv64"
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert why_alone({}) == ""


@pytest.mark.parametrize(("triple", "ordered"), [("aarch64-linux-gnu", True), ("x86_64-linux-gnu", False)])
def test_a_fence_is_an_instruction_where_the_processor_needs_one(triple: str, ordered: bool) -> None:
    import llvmlite.binding as llvm
    import numba

    def order() -> None:
        fence()

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine()
    (text,) = numba.njit("void()")(order).inspect_llvm().values()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = triple, str(machine.target_data)
    assert ("dmb" in machine.emit_assembly(module)) == ordered


@pytest.mark.fault("ranks of x86-64 and of another processor, one slot: every rank sends for itself, with one warning")
@pytest.mark.parametrize("others", ["x86_64", "riscv64"])
def test_a_rank_that_shares_no_memory_lets_all_send_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, others: str
) -> None:
    monkeypatch.setenv("P4REDUCE_HOSTS", "on")
    machine, machines = platform.machine(), threading.local()
    monkeypatch.setattr("platform.machine", lambda: getattr(machines, "of_rank", machine))

    def run(rank: int) -> set[float]:
        machines.of_rank = "riscv64" if rank == 1 else others
        with p4reduce.join("job", rank=rank, world_size=3, controller=local.address, timeout_s=LIMIT_S) as comm:
            own = np.full(1 << 16, 10**rank, np.float32)
            first, shared = comm.all_reduce(own), comm.empty(own.shape)
            shared[:] = own
            return set(map(float, [*first, *comm.all_reduce(shared)]))

    with local_system(tmp_path) as local, JobClient(local.address) as client, ThreadPoolExecutor() as ranks:
        client.create_job("job", 3, slots=1)
        assert list(ranks.map(run, range(3))) == 3 * [{111.0}]
    warned = [record.getMessage() for record in caplog.records if "sends for itself" in record.getMessage()]
    reason = "rank 1: its processor is riscv64"
    assert [text.rpartition("own: ")[2] for text in warned] == ([reason] if others == "x86_64" else [])


@pytest.mark.fault("another process has the number of a rank in another container: its memory is not used")
def test_another_file_is_not_taken_for_the_memory_of_a_rank() -> None:
    file = MemoryFile.create(2)
    with pytest.raises(OSError, match="is another file"):
        MemoryFile.open(os.getpid(), file.descriptor, bytes(memory.NONCE_BYTES))
    with pytest.raises(OSError, match="No such file"):
        MemoryFile.open(os.getpid(), 99_999, file.nonce)
    with open(__file__, "rb") as other, pytest.raises(OSError, match="is another file"):
        MemoryFile.open(os.getpid(), other.fileno(), file.nonce)
    opened = MemoryFile.open(os.getpid(), file.descriptor, file.nonce)
    opened.close()
    opened.close()
    file.close()


@pytest.mark.fault("a member truncates the memory of its host: PermissionError, and no other rank is killed by SIGBUS")
@pytest.mark.parametrize("size", [0, 1 << 40])
def test_the_memory_of_a_host_keeps_its_size(size: int) -> None:
    file = MemoryFile.create(2)
    opened = MemoryFile.open(os.getpid(), file.descriptor, file.nonce)
    for descriptor in (file.descriptor, opened.descriptor):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    opened.close()
    file.close()


@pytest.fixture
def shared() -> HostMemory:
    """The memory of two ranks of this process, 4 and 7."""
    return HostMemory(MemoryFile.create(2), (4, 7), (os.getpid(), os.getpid()))


def test_memory_is_used_where_it_was_written(shared: HostMemory) -> None:
    before = shared.bytes_used
    shared.data[shared.input_words : shared.input_words + 1_000_000] = 1
    assert shared.bytes_used - before == pytest.approx(4_000_000, abs=1 << 22)
    assert not shared.elements.flags.writeable and shared.elements[shared.input_words] == 1


@pytest.mark.parametrize("offset", [16, 64])  # where numpy's and torch's large arrays begin in a page
def test_results_do_not_begin_in_a_page_just_behind_the_sums(shared: HostMemory, offset: int) -> None:
    assert (offset - address(shared.sums)) % mmap.PAGESIZE >= 1_024
    assert len(shared.sums) >= DATA_WORDS


def test_memory_that_cannot_be_made_private_is_a_warning(
    shared: HostMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared.allocate(0, 8)
    monkeypatch.setattr(shared._file, "descriptor", -1)
    shared.detach()
    assert "4096 bytes of Communicator.empty stay shared (Bad file descriptor): write to them when" in caplog.text


def test_a_wait_ends_with_all_shards_and_all_data_or_names_the_rank_that_is_late(shared: HostMemory) -> None:
    def wait(**blocks: int) -> None:
        shared.wait(0, 2, 1, time.monotonic(), lambda: None, "a sum", **blocks)

    shared.set_done(0, 1)
    with pytest.raises(CollectiveTimeoutError, match="no sum came from rank 7 of this host") as caught:
        wait()
    assert caught.value.missing_ranks == (7,)
    shared.set_done(1, 1)
    wait()
    shared.set_published(0, 3)
    shared.set_published(1, 2)
    wait(blocks=2)
    with pytest.raises(CollectiveTimeoutError, match="no data came from rank 7 of this host"):
        wait(blocks=3)


def test_a_rank_that_ends_after_its_part_is_no_error(shared: HostMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*arguments: object) -> None:
        shared.set_done(0, 1)
        raise CollectiveError("rank 4 has ended")

    monkeypatch.setattr(shared, "_check", ended)
    shared.wait(0, 1, 1, time.monotonic() + 600, lambda: None, "a sum")


@pytest.mark.fault("a process of a host is killed: the other ranks of the host get an error at once that names it")
def test_a_wait_ends_with_a_process_of_the_host(shared: HostMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_processes", (1, 2))
    monkeypatch.setattr(shared, "_watched", [(2, Mock(return_value=True))])
    with pytest.raises(CollectiveError, match="rank 7 of this host, process 2, has ended"):
        shared.wait(0, 2, 1, time.monotonic() + 600, lambda: None, "a sum")
    told = iter([None, JobResetError("rank 7 left")])  # the controller says so a moment after the process has ended
    with pytest.raises(JobResetError, match="rank 7 left"):
        shared.wait(0, 2, 1, time.monotonic() + 600, lambda: next(told), "a sum")
    shared.close()


@pytest.mark.processes
@pytest.mark.fault("a rank of a host is killed between sums: the ranks of all hosts get an error, and can join again")
def test_ranks_of_two_hosts_find_each_other_and_end(
    torch_server: ForkServer, wide_system: System, tmp_path: Path
) -> None:
    with JobClient(wide_system.controller.address("jobs on")) as client:
        client.create_job("hosts", 4, slots=64)
        of_test = {"P4REDUCE_CONTROLLER": client.address, "P4REDUCE_HOSTS": "on", "PYTHONPATH": PYTHONPATH}
        environment = {**os.environ, **of_test}
        outputs = torch_server.launch(tmp_path, 4, __file__, environment=environment, timeout_s=LIMIT_S)
        for output in outputs[:3]:
            assert "2 shards, same sum, same mean\n" in output and output.endswith("\nTrue True\nTrue\n")
        assert [job.name for job in client.list_jobs().jobs] == ["hosts"]


def main() -> None:
    """Be a rank of two hosts of two; rank 3 ends."""
    rank = int(os.environ["RANK"])
    os.environ["P4REDUCE_HOSTID"] = f"host {rank % 2}"
    comm = p4reduce.join("hosts", timeout_s=LIMIT_S)  # kernels may be compiled first
    numbers = [np.random.default_rng(seed).integers(-(2**20), 2**20, 200_000) for seed in range(4)]
    shared = comm.empty(200_000)
    shared[:] = numbers[rank]
    if os.fork() == 0:  # what a child writes is its own
        shared += 1
        os._exit(0)
    os.wait()
    total = comm.all_reduce(shared)
    assert comm.hosts is not None and comm.hosts.plan is not None
    same = "same" if (total == np.sum(numbers, axis=0)).all() else "another"
    means = all_reduce_compressed(comm, NoCompression(), {"w": torch.from_numpy(numbers[rank]).float()})[0].means
    mean = "same" if torch.equal(means["w"], torch.from_numpy(total / 4)) else "another"
    print(f"{comm.hosts.plan.shards} shards, {same} sum, {mean} mean", flush=True)
    comm.barrier()
    if rank == 3:
        os._exit(0)
    try:
        comm.all_reduce(shared)
    except CollectiveError as error:
        print("rank 3 is gone" in str(error) or error, (shared == numbers[rank]).all())
    comm.close(wait=False)
    shared += 1
    print((shared == numbers[rank] + 1).all())


if __name__ == "__main__":
    main()
