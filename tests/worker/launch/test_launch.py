"""A launch that names no controller starts its own, and nothing of it is left."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from p4reduce.errors import JoinError
from p4reduce.launch import addresses, launch
from p4reduce.launch.children import Child
from p4reduce_contracts.jobs.client import JobClient
from rigs.launched import HashStore, started
from rigs.limits import LIMIT_S, wait_until
from rigs.running import is_running


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, which has none of the launches'; and no controller is at the default address."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(launch, "DEFAULT_CONTROLLER", "127.0.0.1:9")
    return tmp_path


def launches(ranks: list[launch.Launch | str]) -> list[launch.Launch]:
    """Return what each rank has started; none has an error."""
    assert all(isinstance(each, launch.Launch) for each in ranks), ranks
    return [each for each in ranks if isinstance(each, launch.Launch)]


def switches_of(one: launch.Launch) -> list[str]:
    with JobClient(one.controller, security=one.security) as client:
        return [each.name for each in client.list_switches() if not each.problem]


def test_ranks_of_one_host_share_its_memory_and_start_nothing(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("P4REDUCE_HOSTS", "on")
    monkeypatch.setattr(subprocess, "Popen", None)
    with caplog.at_level(logging.INFO):
        ranks = launches(started(3))
    assert "all 3 ranks on this host, no controller named: sums are made in its memory" in caplog.messages

    def run(one: launch.Launch) -> list[float]:
        assert one.comm is not None and (one.controller, one.children) == ("", [])
        with one.comm as comm:
            return [float(each) for each in comm.all_reduce(np.full(2, 1 + comm.rank, np.float32))]

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(run, ranks)) == 3 * [[6.0, 6.0]]


@pytest.mark.processes
def test_ranks_of_one_host_that_share_no_memory_have_one_switch_whose_loss_is_logged_and_nothing_is_left(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("P4REDUCE_HOSTS", "off")
    with caplog.at_level(logging.INFO):
        one, other = launches(started(2))
    assert "1 host whose memory is not used (ranks 0, 1: P4REDUCE_HOSTS is off), no controller" in caplog.text
    assert one.controller == other.controller and not other.children
    assert (one.security, switches_of(one)) == (None, ["host0"])
    children = [child._process for child in one.children]
    one.children[0].close()
    wait_until(lambda: "the controller of this launch: " in caplog.text)
    assert "switch lost" in caplog.text
    one.close()
    assert [child.poll() is not None for child in children] == [True, True]
    assert not list(temporary.iterdir())


class Store(HashStore):
    """A store that can be looked through."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value
        super().set(key, value)

    def delete_key(self, key: str) -> bool:
        del self.kept[key]
        return super().delete_key(key)


@pytest.mark.processes
def test_hosts_have_a_switch_each_over_tls(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "host_key", lambda environment: threading.current_thread().name)
    monkeypatch.setattr(launch, "own_address", lambda environment, store_host: "127.0.0.1")
    ranks = launches(started(2, store=(store := Store())))
    assert store.kept and "PRIVATE KEY" not in str(store.kept)
    assert [switches_of(each) for each in ranks] == [["host0", "host1"]] * 2
    with pytest.raises(Exception, match="TLS|no controller"), JobClient(ranks[0].controller) as client:
        client.list_switches()
    for each in ranks:
        each.close()
    assert not list(temporary.iterdir())


@pytest.mark.processes
@pytest.mark.fault("the host that had the launch's controller leaves: the others start one, and their switches, anew")
def test_other_members_use_the_controller_that_one_of_them_has_started(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "host_key", lambda environment: threading.current_thread().name)
    monkeypatch.setattr(launch, "own_address", lambda environment, store_host: "127.0.0.1")
    first, second = launches(started(2))
    address, children = first.controller, [*first.children]
    joined = launches(started(3, former=[None, second, first]))
    assert [one.controller for one in joined] == [address] * 3
    assert [len(one.children) for one in joined] == [0, 1, 2] and all(child.is_running() for child in children)
    assert [switches_of(one) for one in joined] == [["host0", "host1"]] * 3
    new, second, first = joined
    first.close()
    alone = launches(started(2, former=[second, new]))
    assert alone[0].controller == alone[1].controller != address
    assert [switches_of(one) for one in alone] == [["host0", "host1"]] * 2 and not second.children
    for one in alone:
        one.close()
    assert not any(child.is_running() for child in children)


@pytest.mark.processes
@pytest.mark.fault("a rank is killed: its switch and its controller end, even stopped ones, and no file is left")
@pytest.mark.parametrize("stopped", [False, True])
def test_children_end_with_a_rank_that_is_killed(temporary: Path, stopped: bool) -> None:
    script = (
        "import os, sys, time; sys.path[:0] = sys.argv[1:]\n"
        "from p4reduce.launch import launch; from rigs import launched\n"
        "launch.DEFAULT_CONTROLLER = '127.0.0.1:9'\n"
        "os.environ['P4REDUCE_HOSTS'] = 'off'\n"
        "one = launch.start(launched.HashStore(), 0, 1, 60)\n"
        "print(*(child._process.pid for child in one.children), flush=True); time.sleep(600)"
    )
    paths = [path for path in sys.path if path.endswith("tests")]
    with subprocess.Popen([sys.executable, "-c", script, *paths], stdout=subprocess.PIPE, text=True) as rank:
        assert rank.stdout is not None
        pids = [int(pid) for pid in rank.stdout.readline().split()]
        assert len(pids) == 2 and not list(temporary.iterdir())
        for pid in pids if stopped else ():
            os.kill(pid, signal.SIGSTOP)
        rank.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, pids)))
    assert not list(temporary.iterdir())


@pytest.mark.processes
def test_the_last_lines_of_a_child_that_ends_are_the_error(temporary: Path) -> None:
    child = Child("the switch of this launch", ["switch", "run", "--listen", "nowhere"])
    child.give({})
    with pytest.raises(JoinError, match="the switch of this launch ended: .*nowhere"):
        child.wait_for("ready", time.monotonic() + LIMIT_S)
    child.close()
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("kind", [JoinError, OSError])
def test_an_error_of_one_rank_is_that_of_all(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Child:
        raise kind("no switch here")

    monkeypatch.setattr(launch, "_switch_at", fail)
    monkeypatch.setenv("P4REDUCE_HOSTS", "off")
    store = HashStore()
    assert started(3, store=store) == ["rank 0: no switch here"] * 3
    assert store.add("launch/error/heard", 0) == 3, "rank 0, with which a store may end, waits until all have heard"


def test_a_rank_that_does_not_come_is_an_error_in_time() -> None:
    with pytest.raises(JoinError, match="not started in time .*host/1.*on some of them only"):
        launch.start(HashStore(), 0, 2, 0.1)


def test_a_controller_at_the_default_address_is_used_where_all_ranks_are_on_its_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "is_controller", lambda address: True)
    monkeypatch.setenv("P4REDUCE_CA", "ca.pem")  # which is for that one
    for one in launches(started(2)):
        assert (one.controller, one.children, one.security) == (launch.DEFAULT_CONTROLLER, [], None)


def test_what_is_no_controller_at_the_default_address_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(launch, "_ASK_S", 0.2)
    assert not launch.is_controller("127.0.0.1:9") and not caplog.text
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not launch.is_controller("{}:{}".format(*silent.getsockname()))
    assert "is not used: the controller at 127.0.0.1:" in caplog.text


def test_a_controller_without_a_switch_at_the_default_address_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    problems: list[str | None] = ["connecting", "lost"]
    listed = [SimpleNamespace(problem=problem) for problem in problems]
    monkeypatch.setattr(launch, "_ASK_S", 0.05)
    monkeypatch.setattr(launch, "answers", lambda address: True)
    monkeypatch.setattr(JobClient, "list_switches", lambda self: listed)
    assert not launch.is_controller("127.0.0.1:9")
    assert "127.0.0.1:9 is not used: it has no switch: connecting; lost" in caplog.text
    listed[1].problem = None
    assert launch.is_controller("127.0.0.1:9")


def test_on_one_host_everything_is_on_loopback_and_over_tls_where_credentials_are_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = [{"key": "one", "address": "10.0.0.1"}] * 2
    plan = launch._plan(told)
    assert (plan["firsts"], plan["addresses"], plan["files"]) == ([0], ["127.0.0.1"], {})
    monkeypatch.setenv("P4REDUCE_CA", "ca.pem")
    assert "worker.key" in launch._plan(told)["files"]


def test_hosts_without_a_known_address_and_too_many_ranks_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(hosts: int, address: str) -> list[dict[str, str]]:
        return [{"key": f"host {number}", "address": address} for number in range(hosts)]

    with pytest.raises(JoinError, match="not of all an address is known: set GLOO_SOCKET_IFNAME"):
        launch._plan(told(2, ""))
    assert launch._plan(told(2, "127.0.0.1"))["addresses"] == ["127.0.0.1"] * 2  # one machine, hosts by P4REDUCE_HOSTID
    for rows in (told(33, "10.0.0.1"), told(1, "") * 33):
        with pytest.raises(JoinError, match="at most 32 ranks, and this one has 33: start a controller with a tree"):
            launch._plan(rows)
    monkeypatch.setattr(launch, "is_controller", lambda address: True)
    assert launch._plan(told(1, "") * 33)["controller"] == launch.DEFAULT_CONTROLLER  # which may have a tree


def test_a_host_whose_own_name_is_on_loopback_takes_its_route_to_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "route_to", lambda host, *_: f"as seen from {host}")
    assert addresses.reachable("127.0.1.1", ["127.0.1.1", "10.0.0.2"]) == "as seen from 10.0.0.2"
    assert addresses.reachable("10.0.0.2", ["127.0.1.1", "10.0.0.2"]) == "10.0.0.2"


@pytest.mark.fault("a clone of a virtual machine has the other one's boot id: they are two hosts by their addresses")
def test_hosts_of_one_key_differ_by_their_addresses() -> None:
    def firsts(key: str, *rows: tuple[str, list[str]]) -> Any:
        return launch._plan([{"key": key, "address": own, "local": local} for own, local in rows])["firsts"]

    one, other = ["127.0.0.1", "172.17.0.1", "10.0.0.1"], ["127.0.0.1", "172.17.0.1", "10.0.0.2"]
    assert firsts("boot", ("10.0.0.1", one), ("10.0.0.2", other), ("10.0.0.2", other)) == [0, 1]
    assert firsts("boot", ("127.0.0.1", one), ("10.0.0.2", other)) == [0, 1]  # its own name is on loopback
    assert firsts("boot", ("127.0.0.1", one), ("10.0.0.1", one), ("172.17.0.1", one), ("", [])) == [0]
    assert firsts("id of P4REDUCE_HOSTID", ("10.0.0.1", []), ("10.0.0.2", [])) == [0]
    assert "127.0.0.1" in addresses.local_addresses()


class Addressed(HashStore):
    """A store with a host, as TCPStore is."""

    host = "::1"


@pytest.mark.fault("hosts reach each other by IPv6 alone: all ranks say at once that IPv4 is needed")
@pytest.mark.parametrize("interface", ["", "nowhere0"])
def test_hosts_without_ipv4_are_an_error_of_all_ranks(monkeypatch: pytest.MonkeyPatch, interface: str) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)
    monkeypatch.setattr(launch, "host_key", lambda environment: threading.current_thread().name)
    (told,) = set(started(3, store=Addressed()))
    assert str(told).startswith("p4reduce needs IPv4 between hosts; rank 0: ")


def test_gloo_has_the_address_of_the_route_to_the_store_or_to_another_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = {"localhost": "127.0.0.1", "node0": "10.0.0.2", "10.0.0.2": "10.0.0.1"}
    monkeypatch.setattr(addresses, "route_to", lambda host, *_: routes.get(host, ""))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")

    def addresses_of(*hosts: str) -> list[str]:
        """Return those of ranks that name the store's host so."""
        stores = [SimpleNamespace(set=shared.set, multi_get=shared.multi_get, host=host) for host in hosts]
        with ThreadPoolExecutor() as pool:
            return list(pool.map(addresses.gloo_address, stores, range(len(hosts)), [len(hosts)] * len(hosts)))

    shared = HashStore()
    assert addresses_of("localhost", "node0") == ["10.0.0.1", "10.0.0.2"]
    shared = HashStore()
    assert addresses_of("localhost", "localhost", "unknown") == ["127.0.0.1", "127.0.0.1", ""]
    assert addresses_of("") == [""]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    assert addresses_of("node0", "node0") == ["", ""] and shared.get("address/1") == b"", "others may look for it"


def test_the_address_is_that_of_the_interface_or_of_the_route_to_the_store() -> None:
    assert addresses.own_address({}, "") == ""
    assert addresses.own_address({}, "127.0.0.1") == "127.0.0.1"
    with pytest.raises(JoinError, match=r"no route by IPv4 to ::1 \(MASTER_ADDR\)"):
        addresses.own_address({}, "::1")
    assert addresses.own_address({"GLOO_SOCKET_IFNAME": "lo,eth7"}, "10.0.0.1") == "127.0.0.1"
    with pytest.raises(JoinError, match="names nowhere0, which has no IPv4 address"):
        addresses.own_address({"GLOO_SOCKET_IFNAME": "nowhere0"}, "")
