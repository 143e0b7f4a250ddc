"""What the testbed would run and write, looked at without running it."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType

import pytest

from p4reduce_controller import config
from p4reduce_lab import targets
from p4reduce_lab.errors import MissingToolError
from p4reduce_lab.shaping import Shape, nft_rules, qdiscs
from p4reduce_runtime.settings import ConfigError
from p4reduce_testbed.cli import TOPOLOGIES, _load, fill_in
from p4reduce_testbed.mininet_network import import_mininet
from p4reduce_testbed.networks import Management
from p4reduce_testbed.testbed import controller_config
from p4reduce_testbed.topology import Topology, load


@pytest.fixture
def topology() -> Topology:
    return load(TOPOLOGIES / "four_workers.json")


def test_the_controller_reads_its_generated_configuration(topology: Topology, tmp_path: Path) -> None:
    lines = controller_config(topology, tmp_path / 'a "pipeline"', ["127.0.0.1:1234"], "169.254.210.1:9600", tmp_path)
    read = config.parse("\n".join(lines))
    (switch,) = read.switches
    assert switch.pipeline == str(tmp_path / 'a "pipeline"')
    assert (switch.name, switch.address, switch.mac, switch.flood) == (
        "s1",
        "10.0.0.254",
        "02:00:00:00:00:01",
        (1, 2, 3, 4),
    )
    assert (switch.p4runtime, read.controller.listen) == ("127.0.0.1:1234", "169.254.210.1:9600")
    assert [(port.number, port.mac) for port in read.ports] == [(host.port, host.mac) for host in topology.hosts]


def test_the_controller_reads_the_configuration_of_a_tree(tmp_path: Path) -> None:
    topology = load(TOPOLOGIES / "two_racks.json")
    addresses = [f"127.0.0.1:{number}" for number in (1, 2, 3)]
    read = config.parse("\n".join(controller_config(topology, tmp_path, addresses, "169.254.210.1:9600", tmp_path)))
    assert [(one.name, one.parent, one.uplink_port, one.p4runtime, one.flood) for one in read.switches] == [
        ("root", None, None, "127.0.0.1:1", (1, 2)),
        ("leaf1", "root", 9, "127.0.0.1:2", (1, 2, 9)),
        ("leaf2", "root", 9, "127.0.0.1:3", (1, 2, 9)),
    ]
    assert {one.address for one in read.switches} == {"10.0.0.254"}
    assert [one.trunk_address for one in read.switches] == ["10.0.0.253", "10.0.0.252", "10.0.0.251"]
    ports = [(port.switch, port.number) for port in read.ports if port.mac == topology.hosts[3].mac]
    assert ports == [("root", 2), ("leaf1", 9), ("leaf2", 2)]


def test_a_packaged_topology_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(_load(Path("two_racks")).switches) == 3
    with pytest.raises(ConfigError, match="cannot read the topology three_racks"):
        _load(Path("three_racks"))
    (tmp_path / "two_racks").write_text((TOPOLOGIES / "four_workers.json").read_text())
    assert len(_load(Path("two_racks")).switches) == 1, "a file of that name has precedence"


def test_bmv2_gets_general_options_before_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "need", lambda program, how: f"/somewhere/{program}")
    monkeypatch.setattr(targets, "run", lambda command: "  --thrift-port arg   TCP port for the Thrift server")
    command = targets.command("bmv2", ["1@s1-eth1", "2@s1-eth2"], "127.0.0.1:5000")
    general, own = command[: command.index("--")], command[command.index("--") + 1 :]
    assert general[0] == "/somewhere/simple_switch_grpc" and "--no-p4" in general
    assert [general[at + 1] for at, word in enumerate(general) if word == "-i"] == ["1@s1-eth1", "2@s1-eth2"]
    assert int(general[general.index("--thrift-port") + 1]) not in (0, 9090)
    assert own == ["--grpc-server-addr", "127.0.0.1:5000", "--cpu-port", "510"]
    monkeypatch.setattr(targets, "run", lambda command: "  -h [ --help ]   Display this help message")
    assert "--thrift-port" not in targets.command("bmv2", ["1@s1-eth1"], "127.0.0.1:5000"), "it was built without"
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingToolError, match=r"simple_switch_grpc is not on PATH: .*--target embedded"):
        targets.command("bmv2", [], "127.0.0.1:5000")


@pytest.mark.parametrize(
    ("shape", "netem_loss", "commands"),
    [
        (Shape(), 0, []),
        (Shape(loss_percent=1), 0, []),  # nftables' work
        (Shape(loss_percent=1), 1, ["root handle 1: netem loss 1%"]),
        (
            Shape(delay_ms=2, rate_mbit=100),  # 50000 bytes pass in a tick
            0,
            [
                "root handle 1: tbf rate 100mbit burst 50000 latency 50ms",
                "parent 1:1 handle 10: netem delay 2ms limit 10000",
            ],
        ),
        (Shape(rate_mbit=1), 0, ["root handle 1: tbf rate 1mbit burst 15140 latency 50ms"]),  # ten full frames
    ],
)
def test_rate_then_delay_on_a_device(shape: Shape, netem_loss: float, commands: list[str]) -> None:
    given = [" ".join(command) for command in qdiscs(shape, "eth0", netem_loss)]
    assert given == [f"tc qdisc replace dev eth0 {command}" for command in commands]


def test_loss_drops_that_share_at_each_hook() -> None:
    rules = nft_rules(["down", "up"], 0.5, ("ingress",))
    assert rules.count("numgen random mod 100000 < 500 counter drop") == 2
    assert all(f'hook ingress device "{name}"' in rules for name in ("down", "up"))


def test_only_known_placeholders_are_replaced(topology: Topology) -> None:
    filled = fill_in("{rank}/{world_size} {host} {ip} ${HOME} {x}", topology.hosts[2], 4)
    assert filled == "2/4 h3 10.0.0.3 ${HOME} {x}"


def test_management_addresses(topology: Topology) -> None:
    management = Management.parse("192.168.9.0/28", topology)
    found = [management.controller, *(management.interface(host) for host in topology.hosts)]
    assert found[::4] == ["192.168.9.1", "192.168.9.5/28"]
    for text, words in (
        ("10.0.0.0/16", "overlaps the hosts' 10.0.0.0/24"),
        ("192.168.9.0/30", "too small"),
        ("192.168.9.1/24", "a management network is like"),
    ):
        with pytest.raises(ConfigError, match=words):
            Management.parse(text, topology)


def test_the_folder_mininet_is_not_imported_as_mininet() -> None:
    try:
        found = import_mininet("util")
    except MissingToolError as error:
        assert "apt install mininet" in str(error)  # noqa: PT017
    else:
        assert found.__name__ == "mininet.util" and hasattr(found, "quietRun")


def test_mininet_does_not_change_the_loggers_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "log.py").write_text(
        "import logging\nclass Own(logging.Logger): pass\nlogging.setLoggerClass(Own)\n", encoding="utf-8"
    )
    package = ModuleType("mininet")
    package.__file__, package.__path__ = str(tmp_path / "__init__.py"), [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "mininet", package)
    monkeypatch.setitem(sys.modules, "mininet.log", package)
    monkeypatch.delitem(sys.modules, "mininet.log")
    before = logging.getLoggerClass()
    monkeypatch.setattr(logging, "_loggerClass", before)  # so that other tests see nothing of it if this one fails
    assert issubclass(import_mininet("log").Own, logging.Logger)
    assert logging.getLoggerClass() is before
