"""The topology file: what is read from it, and refused with which words; what the testbed would run and write."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from p4reduce_controller import config
from p4reduce_lab.errors import MissingToolError, SetupError
from p4reduce_lab.shaping import Shape, nft_rules, qdiscs
from p4reduce_runtime.settings import ConfigError
from p4reduce_testbed import cli, targets
from p4reduce_testbed.cli import TOPOLOGIES, _load, fill_in
from p4reduce_testbed.mininet_network import import_mininet
from p4reduce_testbed.networks import Management
from p4reduce_testbed.testbed import controller_tables
from p4reduce_testbed.topology import Topology, Uplink, load, parse


def a_topology(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "hosts": {
            "h1": {"ip": "10.0.0.1/24", "mac": "02:00:00:00:01:01"},
            "h2": {"ip": "10.0.0.2/24", "mac": "02:00:00:00:01:02"},
        },
        "switches": {"s1": {}},
        "links": [["h1", "s1-p1"], ["h2", "s1-p2"]],
    }
    return document | changes


def refusal(document: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(json.dumps(document))
    return str(caught.value)


def with_host(name: str = "h2", **entry: Any) -> dict[str, Any]:
    """Return it with changes to its second host."""
    hosts = a_topology()["hosts"]
    hosts[name] = hosts.pop("h2") | entry
    return a_topology(hosts=hosts, links=[["h1", "s1-p1"], [name, "s1-p2"]])


def three_levels(**changes: Any) -> dict[str, Any]:
    """Switches a, b below a, c below b, d below a; h1 at c, h2 at d, h3 at a."""
    hosts = a_topology()["hosts"] | {"h3": {"ip": "10.0.0.3/24", "mac": "02:00:00:00:01:03"}}
    links = [["h1", "c-p1"], ["d-p2", "h2"], ["h3", "a-p7"], ["c-p8", "b-p1"], ["b-p9", "a-p1"]]
    links.append(["a-p2", "d-p5", "1ms", 50])
    return {"hosts": hosts, "switches": {"a": {}, "b": {}, "c": {}, "d": {}}, "links": links} | changes


def with_switch_b(**entry: str) -> dict[str, Any]:
    return three_levels(switches={"a": {}, "b": entry, "c": {}, "d": {}})


def with_link(*link: Any) -> dict[str, Any]:
    """Return it with this as its second link."""
    return a_topology(links=[["h1", "s1-p1"], [*link]])


def test_ranks_are_in_the_order_of_hosts_and_ports_of_links() -> None:
    document = a_topology(links=[["s1-p9", "h2"], ["h1", "s1-p4"]])
    document["hosts"] = dict(reversed(document["hosts"].items()))
    topology = parse(json.dumps(document))
    assert [(host.name, host.rank, host.port) for host in topology.hosts] == [("h2", 0, 9), ("h1", 1, 4)]
    assert [host.switch_interface for host in topology.hosts] == ["s1-eth9", "s1-eth4"]
    assert topology.ports("s1") == (4, 9)
    assert topology.hosts[0].ip == "10.0.0.2" and str(topology.network) == "10.0.0.0/24"
    document["hosts"]["h2"]["commands"] = ["ip route add default via 10.0.0.254"]
    document["switches"] = {"s1": {"runtime_json": "s1-runtime.json"}}  # as the p4 tutorials have it
    assert parse(json.dumps(document)).hosts[0].commands == ("ip route add default via 10.0.0.254",)


def test_the_switch_has_an_address_of_its_own() -> None:
    (switch,) = parse(json.dumps(a_topology())).switches
    assert (switch.ip, switch.trunk_ip, switch.trunk_mac, switch.uplink) == ("10.0.0.254", "", "", None)
    given = {"s1": {"ip": "10.0.0.9/24", "mac": "02:00:00:00:00:AA"}}
    (switch,) = parse(json.dumps(a_topology(switches=given))).switches
    assert (switch.ip, switch.mac) == ("10.0.0.9", "02:00:00:00:00:aa")


@pytest.mark.parametrize(
    ("tail", "shape"),
    [
        ([], Shape()),
        (["2ms"], Shape(delay_ms=2)),
        (["500us", 10], Shape(delay_ms=0.5, rate_mbit=10)),
        (["1 s"], Shape(delay_ms=1000)),
        ([3, None, 0.5], Shape(delay_ms=3, loss_percent=0.5)),
        (["0", 1.5, None], Shape(rate_mbit=1.5)),
    ],
)
def test_delay_rate_and_loss(tail: list[Any], shape: Shape) -> None:
    topology = parse(json.dumps(a_topology(links=[["h1", "s1-p1", *tail], ["h2", "s1-p2"]])))
    assert [host.shape for host in topology.hosts] == [shape, Shape()]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (with_host(rate=3), "hosts.h2: Object contains unknown field `rate`"),
        (a_topology(links=[["h1", "s1-p1"]]), "host h2 has no link"),
        (with_host(commands=["true", 3]), "hosts.h2.commands[1]: Expected `str`, got `int`"),
        (a_topology(switches={"s1": {"ip": "s1"}}), "switches.s1.ip must be like '10.0.0.254', not 's1'"),
        (3, "the file: Expected `object`, got `int`"),
        (a_topology(switches={}), "switches: there are 0; a testbed has 1 to 99"),
        (a_topology(switches={"h1": {}}), "'h1' is both a host and a switch"),
        (with_host(ip="10.0.1.2/24"), "put all hosts into one subnet"),
        (with_host(ip="10.0.0.2"), "needs its subnet, like 10.0.0.2/24"),
        (with_host(ip="10.0.0.2/33"), "hosts.h2.ip must be like '10.0.0.1/24'"),
        (with_host(ip="10.0.0.1/24"), "the ip 10.0.0.1 is given to two nodes"),
        (with_host(ip="10.0.0.254/24"), "the ip 10.0.0.254 is given to two nodes"),
        (with_host(ip="10.0.0.255/24"), "no host's address"),
        (with_host(mac="02:00:00:00:01:01"), "the mac 02:00:00:00:01:01 is given to two nodes"),
        (with_host(mac="03:00:00:00:01:02"), "group address"),
        (a_topology(switches={"s1": {"ip": "10.0.1.1"}}), "not in the hosts' 10.0.0.0/24"),
        (with_host("a host"), "hosts.a host: a name is a letter"),
        (a_topology(switches={"switch123": {}}, links=[["h1", "switch123-p1"], ["h2", "switch123-p123"]]), "too long"),
        (with_switch_b(ip="10.0.0.200"), "switches a and b have different ip or mac"),
        (with_switch_b(trunk_ip="10.0.1.9"), "switches.b.trunk_ip is 10.0.1.9, which is not in the hosts' 10.0.0.0/24"),
        (with_switch_b(trunk_ip="10.0.0.253"), "the ip 10.0.0.253 is given to two nodes"),
        (with_switch_b(trunk_mac="02:00:00:00:01:01"), "the mac 02:00:00:00:01:01 is given to two nodes"),
        (with_switch_b(trunk_ip="b"), "switches.b.trunk_ip must be like '10.0.0.254', not 'b'"),
        (with_link("h1", "h2"), "links[1] must join a host and a port of a switch, like 's1-p1', or the ports of two"),
        (
            with_link("h2", "s2-p1"),
            "a host and a port of a switch, like 's1-p1', or the ports of two switches (there are s1)",
        ),
        (with_link("h2"), "links[1] must be [host, switch port, delay, rate, loss]"),
        (with_link("h1", "s1-p2"), "links[1]: host h1 already has a link"),
        (with_link("h2", "s1-p1"), "links[1]: port 1 of s1 already has a link"),
        (with_link("h2", "s1-p510"), "links[1]: ports are 1 to 509, not 510"),
        (with_link("h2", "s1-p2", "2 m"), "links[1]: a delay is written like '2ms'"),
        (with_link("h2", "s1-p2", None, "fast"), "links[1]: the rate in Mbit/s: Expected `float`, got `str`"),
        (with_link("h2", "s1-p2", None, None, 100), "links[1]: the loss in percent: Expected `float` <= 99"),
    ],
)
def test_impossible_files_are_refused_and_the_place_is_named(document: Any, words: str) -> None:
    assert words in refusal(document)


def test_switches_are_a_tree_below_the_first() -> None:
    topology = parse(json.dumps(three_levels()))
    uplinks = {switch.name: switch.uplink for switch in topology.switches}
    assert uplinks == {
        "a": None,
        "b": Uplink("b", 9, "a", 1),
        "c": Uplink("c", 8, "b", 1),
        "d": Uplink("d", 5, "a", 2, Shape(delay_ms=1, rate_mbit=50)),
    }
    interfaces = [trunk.interfaces for trunk in topology.trunks]
    assert interfaces == [("b-eth9", "a-eth1"), ("c-eth8", "b-eth1"), ("d-eth5", "a-eth2")]
    assert [topology.ports(switch.name) for switch in topology.switches] == [(1, 2, 7), (1, 9), (1, 8), (2, 5)]
    ports = {
        switch.name: [topology.port_to(switch.name, host) for host in topology.hosts] for switch in topology.switches
    }
    assert ports == {"a": [1, 2, 7], "b": [1, 9, 9], "c": [1, 8, 8], "d": [5, 2, 5]}, "to every host"
    switches = topology.switches
    assert {(switch.ip, switch.mac) for switch in switches} == {("10.0.0.254", "02:00:00:00:00:01")}
    assert [(switch.trunk_ip, switch.trunk_mac) for switch in switches][::3] == [
        ("10.0.0.253", "02:00:00:00:02:01"),
        ("10.0.0.250", "02:00:00:00:02:04"),
    ]
    own = {"trunk_ip": "10.0.0.99/24", "trunk_mac": "02:00:00:00:03:AA"}
    switch = parse(json.dumps(three_levels(switches={"a": {}, "b": {}, "c": own, "d": {}}))).switches[2]
    assert (switch.trunk_ip, switch.trunk_mac) == ("10.0.0.99", "02:00:00:00:03:aa")


def test_loops_and_gaps_between_switches_are_refused() -> None:
    def tree_refusal(*links: list[str]) -> str:
        return refusal(three_levels(links=[*three_levels()["links"][:3], *links]))

    first, second, third = ["b-p9", "a-p1"], ["c-p8", "b-p2"], ["d-p5", "a-p2"]
    assert "the link d-p9 to c-p9 closes a loop" in tree_refusal(first, second, third, ["d-p9", "c-p9"])
    assert "the link a-p8 to b-p8 closes a loop" in tree_refusal(first, second, third, ["b-p8", "a-p8"])
    assert "the link d-p8 to d-p9 closes a loop" in tree_refusal(first, second, third, ["d-p8", "d-p9"])
    assert "no links lead from a, the root, to d" in tree_refusal(first, second)
    assert "no links lead from a, the root, to c, d" in tree_refusal(first, ["c-p8", "d-p9"])
    assert "port 9 of b already has a link" in tree_refusal(first, ["c-p8", "b-p9"], third)


def test_a_switch_has_32_children() -> None:
    hosts = {f"h{n}": {"ip": f"10.0.0.{n}/24", "mac": f"02:00:00:00:01:{n:02x}"} for n in range(1, 34)}
    links = [[name, f"a-p{number}"] for number, name in enumerate(hosts, 1)]
    with pytest.raises(ConfigError, match="switch a has 33 hosts and switches below it, and sums for 32"):
        parse(json.dumps({"hosts": hosts, "switches": {"a": {}}, "links": links}))
    links[32] = ["h33", "b-p1"]
    tree = {"hosts": hosts, "switches": {"a": {}, "b": {}}, "links": [*links, ["b-p2", "a-p40"]]}
    with pytest.raises(ConfigError, match="switch a has 33 hosts and switches below it, and sums for 32"):
        parse(json.dumps(tree))
    assert len(parse(json.dumps(tree | {"switches": {"b": {}, "a": {}}})).hosts) == 33


def test_a_file_that_is_missing_or_not_json_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not valid JSON"):
        parse("{")
    with pytest.raises(ConfigError, match=r"cannot read the topology .*nowhere\.json"):
        load(tmp_path / "nowhere.json")
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"empty\.json: the file: Object missing required field `hosts`"):
        load(tmp_path / "empty.json")


@pytest.mark.parametrize("path", sorted(cli.TOPOLOGIES.glob("*.json")), ids=lambda path: path.stem)
def test_the_packaged_topologies(path: Path) -> None:
    assert len(load(path).hosts) >= 2


@pytest.fixture
def topology() -> Topology:
    return load(TOPOLOGIES / "four_workers.json")


def test_the_controller_reads_its_generated_configuration(tmp_path: Path) -> None:
    topology, pipeline = load(TOPOLOGIES / "two_racks.json"), tmp_path / 'a "pipeline"'
    addresses = [f"127.0.0.1:{number}" for number in (1, 2, 3)]
    read = config.parse("\n".join(controller_tables(topology, pipeline, addresses)))
    assert [(one.name, one.parent, one.uplink_port, one.p4runtime, one.flood) for one in read.switches] == [
        ("root", None, None, "127.0.0.1:1", (1, 2)),
        ("leaf1", "root", 9, "127.0.0.1:2", (1, 2, 9)),
        ("leaf2", "root", 9, "127.0.0.1:3", (1, 2, 9)),
    ]
    alike = {(one.pipeline, one.address, one.mac) for one in read.switches}
    assert alike == {(str(pipeline), "10.0.0.254", "02:00:00:00:00:01")}
    assert [one.trunk_address for one in read.switches] == ["10.0.0.253", "10.0.0.252", "10.0.0.251"]
    for host, numbers in zip(topology.hosts, ((1, 1, 9), (1, 2, 9), (2, 9, 1), (2, 9, 2)), strict=True):
        ports = [(port.switch, port.number) for port in read.ports if port.mac == host.mac]
        assert ports == list(zip(("root", "leaf1", "leaf2"), numbers, strict=True))


def test_a_packaged_topology_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(_load(Path("two_racks")).switches) == 3
    with pytest.raises(ConfigError, match="cannot read the topology three_racks"):
        _load(Path("three_racks"))
    (tmp_path / "two_racks").write_text((TOPOLOGIES / "four_workers.json").read_text())
    assert len(_load(Path("two_racks")).switches) == 1, "a file of that name has precedence"


def test_bmv2_gets_general_options_before_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(targets, "need", lambda program, how: f"/somewhere/{program}")
    monkeypatch.setattr(targets, "run", lambda command: "  --thrift-port arg   TCP port for the Thrift server")
    (command,) = targets.commands("bmv2", {1: "s1-eth1", 2: "s1-eth2"}, "127.0.0.1:5000", tmp_path)
    general, own = command[: command.index("--")], command[command.index("--") + 1 :]
    assert general[0] == "/somewhere/simple_switch_grpc" and "--no-p4" in general
    assert [general[at + 1] for at, word in enumerate(general) if word == "-i"] == ["1@s1-eth1", "2@s1-eth2"]
    assert int(general[general.index("--thrift-port") + 1]) not in (0, 9090)
    assert own == ["--grpc-server-addr", "127.0.0.1:5000", "--cpu-port", "510"]
    monkeypatch.setattr(targets, "run", lambda command: "  -h [ --help ]   Display this help message")
    (command,) = targets.commands("bmv2", {1: "s1-eth1"}, "127.0.0.1:5000", tmp_path)
    assert "--thrift-port" not in command, "it was built without"
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingToolError, match=r"simple_switch_grpc is not on PATH: .*--target embedded"):
        targets.commands("bmv2", {}, "127.0.0.1:5000", tmp_path)


def test_the_model_of_a_tofino_needs_its_program_and_is_one_switch(tmp_path: Path) -> None:
    (tmp_path / "p4reduce.p4info.txtpb").write_text('pkg_info { arch: "tna" }')
    assert targets.architecture("tofino-model", tmp_path, 1) == "tna"
    (tmp_path / "v1model").mkdir()
    (tmp_path / "v1model/p4reduce.p4info.txtpb").write_text('pkg_info { arch: "v1model" }')
    for folder, switches in ((tmp_path, 2), (tmp_path / "v1model", 1)):
        with pytest.raises(SetupError, match=r"one switch with a Tofino 1's program: .*CPU_PORT=320"):
            targets.architecture("tofino-model", folder, switches)


@pytest.mark.parametrize(
    ("shape", "commands"),
    [
        (Shape(), ["root noqueue"]),
        (Shape(loss_percent=1), ["root noqueue"]),  # nftables' work
        (
            Shape(delay_ms=2, rate_mbit=100),  # 50000 bytes pass in a tick
            [
                "root handle 1: tbf rate 100mbit burst 50000 latency 50ms",
                "parent 1:1 handle 10: netem delay 2ms limit 10000",
            ],
        ),
        (Shape(rate_mbit=1), ["root handle 1: tbf rate 1mbit burst 15140 latency 50ms"]),  # ten full frames
    ],
)
def test_rate_then_delay_on_a_device(shape: Shape, commands: list[str]) -> None:
    given = [" ".join(command) for command in qdiscs(shape, "eth0")]
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
