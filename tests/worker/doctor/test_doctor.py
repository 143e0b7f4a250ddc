"""The doctor over a real switch and controller, and with one thing wrong at a time; whose link limits a dense sum."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from click.testing import CliRunner

import p4reduce
from p4reduce import transport
from p4reduce.communicator import Communicator
from p4reduce.doctor import bottleneck
from p4reduce.doctor import checks as checks_module
from p4reduce.doctor.bottleneck import Rates, host_tensors, limit_of_links, limit_of_slots, measure
from p4reduce.doctor.checks import CHECKS, Check, RankSpec, Status, run_checks
from p4reduce.doctor.cli import doctor
from p4reduce.errors import GeometryMismatchError, JoinError
from p4reduce.stats import CollectiveStats
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.geometry import SMALL
from p4reduce_controller.config import Config, ControllerConfig, SecurityConfig
from p4reduce_lab.network import Interface, NetworkBuilder
from p4reduce_lab.processes import P4REDUCE, Children
from p4reduce_runtime.underlay import HELLO_BYTES
from rigs.certificates import Bench
from rigs.fake_switch_client import serving
from rigs.faulty_link import faulty
from rigs.limits import LIMIT_S
from rigs.local_system import LocalSystem, local_system
from rigs.ports import own_address
from rigs.system import KILLED, over_networks, racks_of

SHORT_S = 3.0
RIGHT_OR_SLOW = (Status.OK, Status.WARNING)  # a busy machine repeats frames


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[LocalSystem]:
    with local_system(tmp_path_factory.mktemp("system"), racks_of(request)) as running:
        yield running


@pytest.fixture
def controller(local: LocalSystem) -> str:
    return local.address


@pytest.fixture
def given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of full frames, which are all lost, is given up after a second; what comes before it has its time."""
    all_reduce = p4reduce.Communicator.all_reduce

    def limited(self: p4reduce.Communicator, array: Any, **keywords: Any) -> Any:
        return all_reduce(self, array, **({"timeout_s": 1.0} if array.size > SMALL.frame_words else {}), **keywords)

    monkeypatch.setattr(p4reduce.Communicator, "all_reduce", limited)


Send = Callable[[list[bytes]], list[bytes]]


@pytest.fixture
def sent_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[Send], None]:
    """Has the frames sent that a function returns of those that were to be sent; they pass the transport."""
    send = transport.UdpTransport.send
    monkeypatch.setattr("p4reduce.paths.switch.make_channel", lambda *_, **__: None)

    def change(frames_of: Send) -> None:
        monkeypatch.setattr(transport.UdpTransport, "send", lambda self, frames: send(self, frames_of(list(frames))))

    return change


def by_name(checks: list[Check]) -> dict[str, Check]:
    assert [check.name for check in checks] == list(CHECKS), "every check is told of, in order"
    return {check.name: check for check in checks}


def failed(checks: list[Check]) -> Check:
    """The one check that failed; what came behind it was skipped."""
    found = [check for check in by_name(checks).values() if check.status is Status.FAILED]
    assert len(found) == 1, checks
    behind = checks[checks.index(found[0]) + 1 :]
    assert all(check.status is Status.SKIPPED and found[0].name in check.found for check in behind), checks
    return found[0]


@over_networks("local")
def test_a_healthy_system(local: LocalSystem, controller: str) -> None:
    done = CliRunner().invoke(doctor, ["--controller", controller, "--json", "--switch", local.switch_of(0, 1)])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["healthy"] is True
    checks = {check["name"]: check for check in answer["checks"]}
    assert list(checks) == list(CHECKS)
    for name in ("certificates", "controller", "job", "HELLO", "exact sum", "full frames", "batches"):
        assert checks[name]["status"] in RIGHT_OR_SLOW, checks[name]
    assert checks["exact sum"]["status"] == "ok"
    assert "packets of 204 B pass unfragmented; 512 int32 and 512 float32" in checks["full frames"]["found"]
    assert "100 rounds of" in checks["round trips"]["found"]
    assert "repeated after 200 ms" not in checks["round trips"]["found"], "the timeout is that of the measured path"
    with JobClient(controller) as client:
        assert not [job for job in client.list_jobs().jobs if job.name.startswith("doctor-")], "it removes its job"


def examined_pair(local: LocalSystem, timeout_s: float, slots: int | None = 8) -> list[list[Check]]:
    """Return the findings of doctors that take part as the ranks of a job of two."""

    def examined(rank: int) -> list[Check]:
        spec, switch = RankSpec("pair", rank, 2), local.switch_of(rank, 2)
        return run_checks(local.address, spec, timeout_s=timeout_s, switch=switch)

    with JobClient(local.address) as client, ThreadPoolExecutor() as pool:
        client.create_job("pair", 2, slots)
        found = list(pool.map(examined, range(2)))
        client.remove_job("pair")
    return found


@over_networks("local")
def test_all_ranks_of_a_job(local: LocalSystem) -> None:
    for rank, checks in enumerate(examined_pair(local, LIMIT_S)):
        named = by_name(checks)
        assert not [check for check in checks if check.status is Status.FAILED], checks
        assert "of 2 rank(s), every bit right" in named["exact sum"].found
        assert "of 2 has its lease" in named["HELLO"].found
        leaf = f"switch leaf{rank + 1} sums rank {rank}, " if local.leaves else ""
        assert named["HELLO"].found.endswith(f"; {leaf}switch {local.root} sums ranks 0, 1")
        assert re.match(
            r"one rank alone [\d.]+ .bit/s( to .*)?, all 2 at once [\d.]+ .bit/s", named["bottleneck"].found
        )


def test_a_rank_is_not_measured_alone_where_no_slots_are_free(local: LocalSystem) -> None:
    for checks in examined_pair(local, LIMIT_S, slots=None):
        found = by_name(checks)["bottleneck"]
        assert found.status is Status.SKIPPED and "rank 0 alone: " in found.found, found


def test_a_running_job_is_not_disturbed(controller: str) -> None:
    with JobClient(controller) as client:
        client.create_job("running", 1)
        with p4reduce.join("running", rank=0, world_size=1, controller=controller) as comm:
            found = failed(run_checks(controller, RankSpec("running", 0, 1)))
            assert found.name == "job" and "running runs, with 1 ranks" in found.found
            comm.barrier()
        found = failed(run_checks(controller, RankSpec("running", 0, 2)))
        assert found.name == "job" and "has 1 ranks, not 2" in found.found
        client.remove_job("running")
        client.create_job("forming", 2)
        client.join("forming", 0, 2)
        found = failed(run_checks(controller, RankSpec("forming", 0, 2)))
        assert found.name == "job" and "rank 0 of forming is taken by a worker that waits" in found.found
        client.remove_job("forming")


def test_no_controller() -> None:
    address = own_address()
    checks = run_checks(address)
    found = failed(checks)
    assert found.name == "controller"
    assert f"no controller at {address}: start one with" in found.found
    done = CliRunner().invoke(doctor, ["--controller", address])
    assert done.exit_code == 1 and "failed" in done.output and "skipped" in done.output


def test_no_switch(tmp_path: Path) -> None:
    """The switch takes no frames: the controller does not know, and no HELLO gets through."""
    with local_system(tmp_path) as local:
        (switch,) = local.switches.values()
        switch.stop_frames()
        found = failed(run_checks(local.address, timeout_s=SHORT_S))
    assert found.name == "HELLO", found
    assert "no HELLO" in found.found or "switch" in found.found
    assert switch.address("UDP") in found.advice


@pytest.mark.fault("a switch that has ended, alone or in a tree, seen by `doctor`: the checks that fail name it")
@pytest.mark.parametrize(("racks", "ended"), KILLED.values(), ids=KILLED)
def test_a_switch_that_has_ended(tmp_path: Path, racks: int, ended: str) -> None:
    with local_system(tmp_path, racks) as local:
        local.switches[ended].close()
        for checks in examined_pair(local, SHORT_S):
            found, which = failed(checks), f"switch {ended}" if local.leaves else "its switch"
            assert found.name == "HELLO" and f"the controller has no connection to {which} at " in found.found, found


@pytest.mark.fault("frames lost on a worker's path, seen by `p4reduce doctor`: the check fails and names the remedy")
def test_a_path_that_loses_frames(controller: str, sent_as: Callable[[Send], None]) -> None:
    sent = itertools.count()
    sent_as(lambda frames: [frame for frame in frames if next(sent) % 8])
    found = by_name(run_checks(controller, timeout_s=LIMIT_S))
    assert found["round trips"].status is Status.WARNING
    repeated = re.search(r" (\d+) of (\d+) were$", found["round trips"].found)
    assert repeated and 10 <= int(repeated[1]) < int(repeated[2]), found["round trips"]
    assert found["full frames"].status is Status.OK, "what is lost is repeated"


def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor's own job is private there, and takes the token that only its creation returns."""
    bench = Bench(tmp_path)
    for name, value in bench.environment("worker").items():
        monkeypatch.setenv(name, value)
    with local_system(tmp_path, 1, bench.of("switch"), bench.toml("controller")) as local:
        checks = run_checks(local.address, timeout_s=LIMIT_S)
        with JobClient(local.address) as client:
            assert not client.list_jobs().jobs
    assert not [check for check in checks if check.status in (Status.FAILED, Status.SKIPPED)], checks


def test_clear_text_beyond_loopback() -> None:
    found = run_checks("10.9.8.7:9600")[0]
    assert (found.name, found.status) == ("certificates", Status.FAILED)
    assert "is beyond loopback" in found.found and "P4REDUCE_INSECURE=1" in found.found


def test_wrong_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, other = Bench(tmp_path / "certs"), Bench(tmp_path / "other")
    files = bench.of("controller")
    config = Config(
        controller=ControllerConfig(listen="127.0.0.1:0", state_dir=str(tmp_path / "state")),
        security=SecurityConfig(str(files.ca), str(files.certificate), str(files.key)),
    )
    with serving(config) as locked:
        for name, value in other.environment("worker").items():
            monkeypatch.setenv(name, value)
        checks = run_checks(locked.address)
        found = failed(checks)
        assert found.name == "controller" and "no TLS connection" in found.found
        monkeypatch.setenv("P4REDUCE_KEY", str(files.key))
        found = failed(run_checks(locked.address))
        assert found.name == "certificates" and "does not belong to the certificate" in found.found
        for name, value in bench.environment("worker").items():
            monkeypatch.setenv(name, value)
        certificates, controller = run_checks(locked.address, RankSpec("nosuch", 0, 1))[:2]
    assert certificates.status is Status.WARNING and "1 days from now" in certificates.found, "they last for two days"
    assert controller.status in RIGHT_OR_SLOW


@pytest.mark.fault("socket buffers that are too small: `doctor` names the setting")
def test_socket_buffers_that_are_too_small(controller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "BUFFER_BYTES", 4096)
    found = by_name(run_checks(controller))["socket buffers"]
    assert found.status is Status.FAILED
    assert "23 full frames fit" in found.found and "8388608 B needed" in found.found
    assert "net.core.rmem_max=8388608" in found.advice
    monkeypatch.setattr(transport, "BUFFER_BYTES", 64 * SMALL.max_frame_bytes)
    assert by_name(run_checks(controller))["socket buffers"].status is Status.WARNING


@pytest.mark.fault("only full frames are lost (MTU): `doctor` names the size")
@pytest.mark.usefixtures("given_up_soon")
def test_full_frames_that_are_lost(controller: str, sent_as: Callable[[Send], None]) -> None:
    """An MTU is too small: short frames pass."""
    sent_as(lambda frames: [frame for frame in frames if len(frame) < SMALL.max_frame_bytes])
    checks = run_checks(controller, timeout_s=LIMIT_S)
    found = failed(checks)
    assert found.name == "full frames"
    assert by_name(checks)["exact sum"].status is Status.OK
    assert "let every MTU between the workers and the switch be 204 B or more" in found.advice


@pytest.mark.usefixtures("given_up_soon")
@over_networks("local")
def test_frames_that_a_switch_drops_are_counted(
    local: LocalSystem, controller: str, sent_as: Callable[[Send], None]
) -> None:
    full = SMALL.max_frame_bytes
    sent_as(lambda frames: [frame[:-1] if len(frame) == full else frame for frame in frames])
    switch = local.switch_of(0, 1)
    found = failed(run_checks(controller, timeout_s=LIMIT_S, switch=switch))
    assert found.name == "full frames"
    assert re.search(rf"; meanwhile frames were dropped: [1-9]\d* TRUNCATED at {switch or local.root}$", found.found)


def test_drops_of_a_switch_that_was_away_before_are_not_new() -> None:
    before = Counter({"EPOCH at leaf1": 3, "STALE at leaf1": 0})
    after = before + Counter({"EPOCH at leaf1": 2, "STALE at leaf1": 1, "EPOCH at leaf2": 900})
    assert checks_module._since(before, after) == "; meanwhile frames were dropped: 2 EPOCH at leaf1, 1 STALE at leaf1"


@pytest.mark.fault("a firewall that lets HELLO pass but not data, on either way: `doctor` says so")
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_firewall_that_lets_hello_pass(
    controller: str, way: str, sent_as: Callable[[Send], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "up":
        sent_as(lambda frames: [frame for frame in frames if len(frame) == HELLO_BYTES])
    else:
        monkeypatch.setattr(transport.UdpTransport, "_drain", lambda self: [])
    checks = run_checks(controller, timeout_s=SHORT_S)
    found = failed(checks)
    assert found.name == "round trips" and by_name(checks)["HELLO"].status is Status.OK
    assert "HELLO has passed: look for a firewall that stops other UDP to 127.0.0.1:" in found.advice


@pytest.mark.fault("a link with an MTU too small, or damaged batches: `doctor` says so")
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: network namespaces")
@pytest.mark.processes
def test_faults_of_a_link(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        network = NetworkBuilder(children)
        near, far = (network.add_namespace(name) for name in ("near", "far"))
        network.add_veth(Interface("eth0", near, address="10.9.0.1/24"), Interface("eth0", far, address="10.9.0.2/24"))
        for program, *options in (
            ("switch", "--listen", "10.9.0.2:21072"),
            ("controller", "--listen", "10.9.0.2:9600", "--insecure", "--switch", "10.9.0.2:21072"),
        ):
            command = [*far.within, *P4REDUCE, program, "run", *options]
            children.start(program, command, {"XDG_STATE_HOME": str(tmp_path)}).wait_line("ready", LIMIT_S)
        doctor = ["env", "P4REDUCE_INSECURE=1", *P4REDUCE, "doctor", "--controller", "10.9.0.2:9600", "--json"]

        def examined(command: list[str]) -> dict[str, Any]:
            done = subprocess.run([*near.within, *command], capture_output=True, text=True, timeout=LIMIT_S)
            if "no eBPF program" in done.stderr:
                pytest.skip(done.stderr)
            assert done.stdout, done.stderr
            return {check["name"]: check for check in json.loads(done.stdout)["checks"]}

        for fault, gso, said in (
            ("batches", "auto", "damaged in batches, none singly"),
            ("batches up", "on", r" in batches;.*dropped: [1-9]\d* HEADER_CHECKSUM at"),
            ("frames up", "off", r" singly;.*dropped: [1-9]\d* HEADER_CHECKSUM at"),
        ):
            found = examined(faulty(fault, "eth0", ["env", f"P4REDUCE_SEGMENTATION={gso}", *doctor]))["batches"]
            assert found["status"] == "warning" and re.search(said, found["found"]), (fault, found)
        far.run("ip", "link", "set", "eth0", "mtu", "1000")  # what is longer is dropped there, and no message says so
        checks = examined([*doctor, "--timeout", str(SHORT_S)])
        found = checks["full frames"]
        assert (checks["exact sum"]["status"], found["status"]) == ("ok", "failed"), checks
        assert "be 1116 B or more (here it is 1500 B)" in found["advice"]


class Batches:
    """A communicator of one rank that says of each sum whether it went in batches, and what arrived."""

    rank, world_size = 0, 1
    lease = SimpleNamespace(slot_count=4, columns=2, block_words=8)

    def __init__(self, damaged_in_batches: int, damaged_singly: int, repeated: int, off_by: int = 0) -> None:
        self.over_switch, self.stats, self.sums = SimpleNamespace(segmentation=True), CollectiveStats(), 0
        self._damaged = {True: damaged_in_batches, False: damaged_singly}
        self._repeated, self._off_by = repeated, off_by

    def all_reduce(self, array: Any) -> Any:
        damaged = self._damaged[self.over_switch.segmentation]
        spent = CollectiveStats(frames_up=100, retransmissions=self._repeated, corrupt=damaged)
        self.stats.add(spent)
        self.sums += 1
        self.over_switch.segmentation = self.sums < 3 or not self._damaged[True]
        return array + np.int32(self._off_by)


@pytest.mark.fault(
    "a link that damages GSO batches, that damages frames, or that drops some when it is full: `doctor` says which"
)
@pytest.mark.parametrize(
    ("comm", "status", "found", "advice"),
    [
        (Batches(0, 0, 0), "ok", "16384 B right, in batches; 0 of 1600 frames were repeated", ""),
        (Batches(2, 0, 0), "warning", "singly; .*; 6 arrived damaged in batches, none singly", "update kernels 7.0.0"),
        (Batches(2, 1, 0), "warning", "repeated; 19 arrived damaged", "look for a faulty host, cable or switch; or"),
        (Batches(0, 0, 3), "warning", "48 of 1600 frames were repeated", "a link that drops frames when it is full"),
        (Batches(0, 0, 0, 1), "failed", "4096 int32 sums are wrong", "do not train like this"),
    ],
)
def test_batches(comm: Any, status: str, found: str, advice: str) -> None:
    check = checks_module._batches(comm)
    assert check.status == status, check
    assert re.search(found, check.found) and advice in check.advice and bool(advice) == bool(check.advice), check


def test_sums_that_are_wrong(controller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = p4reduce.Communicator.all_reduce

    def off_by_one(self: p4reduce.Communicator, array: Any, **keywords: Any) -> Any:
        total = right(self, array, **keywords)
        total[3] += 1
        return total

    monkeypatch.setattr(p4reduce.Communicator, "all_reduce", off_by_one)
    found = by_name(run_checks(controller))
    assert found["exact sum"].status is Status.FAILED and "1 of 8 int32 sums are wrong" in found["exact sum"].found
    assert found["full frames"].status is Status.FAILED
    assert found["full frames"].found.startswith("1 of 512 int32 sums are wrong, 1 of 512 float32 sums")


def test_an_unsupported_geometry_is_reported(controller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobClient, "wait_lease", Mock(side_effect=GeometryMismatchError("1 to 8 columns, not 9")))
    found = failed(run_checks(controller))
    assert found.name == "HELLO" and "1 to 8 columns, not 9" in found.found and "a pipeline that" in found.advice


def test_options_that_do_not_fit() -> None:
    for options, complaint in (
        (["--job", "x"], "--job, --rank and --world-size belong together"),
        (["--rank", "0", "--world-size", "1"], "belong together"),
        (["--job", "x", "--rank", "2", "--world-size", "2"], "ranks are 0 to 1"),
    ):
        done = CliRunner().invoke(doctor, options)
        assert done.exit_code == 2 and complaint in done.output, done.output


def test_fragments_can_be_forbidden(peer: socket.socket) -> None:
    towards = transport.UdpTransport(*peer.getsockname())
    longest = towards.path_mtu - 28
    if longest > 65507:
        pytest.skip("the loopback interface takes whatever UDP can send")
    towards.forbid_fragments()
    towards.send([bytes(longest + 1), bytes(longest)])
    assert len(peer.recv(65535)) == longest
    towards.close()


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
