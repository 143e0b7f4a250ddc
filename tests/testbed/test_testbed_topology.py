"""The topology file: what is read from it, and what is refused with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from p4reduce_lab.shaping import Shape
from p4reduce_runtime.settings import ConfigError
from p4reduce_testbed import cli
from p4reduce_testbed.topology import Uplink, load, parse


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
        (with_host(ip="h2"), "hosts.h2.ip must be like '10.0.0.1/24'"),
        (with_host(ip="10.0.0.2/33"), "hosts.h2.ip must be like '10.0.0.1/24'"),
        (with_host(ip="10.0.0.1/24"), "the ip 10.0.0.1 is given to two nodes"),
        (with_host(ip="10.0.0.254/24"), "the ip 10.0.0.254 is given to two nodes"),
        (with_host(ip="10.0.0.255/24"), "no host's address"),
        (with_host(mac="02:00:00:00:01:01"), "the mac 02:00:00:00:01:01 is given to two nodes"),
        (with_host(mac="03:00:00:00:01:02"), "group address"),
        (with_host(mac="1"), "hosts.h2.mac: must be a MAC address"),
        (a_topology(switches={"s1": {"ip": "10.0.1.1"}}), "not in the hosts' 10.0.0.0/24"),
        (with_host("a host"), "hosts.a host: a name is a letter"),
        (a_topology(switches={"switch123": {}}, links=[["h1", "switch123-p1"], ["h2", "switch123-p123"]]), "too long"),
    ],
)
def test_impossible_files_are_refused_and_the_place_is_named(document: Any, words: str) -> None:
    assert words in refusal(document)


def three_levels(**changes: Any) -> dict[str, Any]:
    """Switches a, b below a, c below b, d below a; h1 at c, h2 at d, h3 at a."""
    hosts = a_topology()["hosts"] | {"h3": {"ip": "10.0.0.3/24", "mac": "02:00:00:00:01:03"}}
    links = [["h1", "c-p1"], ["d-p2", "h2"], ["h3", "a-p7"], ["c-p8", "b-p1"], ["b-p9", "a-p1"]]
    links.append(["a-p2", "d-p5", "1ms", 50])
    return {"hosts": hosts, "switches": {"a": {}, "b": {}, "c": {}, "d": {}}, "links": links} | changes


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


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"ip": "10.0.0.200"}, "switches a and b have different ip or mac"),
        ({"mac": "02:00:00:00:00:02"}, "switches a and b have different ip or mac"),
        ({"trunk_ip": "10.0.1.9"}, "switches.b.trunk_ip is 10.0.1.9, which is not in the hosts' 10.0.0.0/24"),
        ({"trunk_ip": "10.0.0.253"}, "the ip 10.0.0.253 is given to two nodes"),
        ({"trunk_ip": "10.0.0.254"}, "the ip 10.0.0.254 is given to two nodes"),
        ({"trunk_mac": "02:00:00:00:01:01"}, "the mac 02:00:00:00:01:01 is given to two nodes"),
        ({"trunk_ip": "b"}, "switches.b.trunk_ip must be like '10.0.0.254', not 'b'"),
    ],
)
def test_impossible_addresses_of_switches_are_refused(entry: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(json.dumps(three_levels(switches={"a": {}, "b": entry, "c": {}, "d": {}})))


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


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (["h1", "h2"], r"links\[1\] must join a host and a port of a switch, like 's1-p1'"),
        (["h2", "s2-p1"], r"links\[1\] must join .*, or the ports of two switches \(there are s1\)"),
        (["h2"], r"links\[1\] must be \[host, switch port, delay, rate, loss\]"),
        (["h1", "s1-p2"], r"links\[1\]: host h1 already has a link"),
        (["h2", "s1-p1"], r"links\[1\]: port 1 of s1 already has a link"),
        (["h2", "s1-p510"], r"links\[1\]: ports are 1 to 509, not 510"),
        (["h2", "s1-p0"], r"links\[1\]: ports are 1 to 509, not 0"),
        (["h2", "s1-p2", "2 m"], r"links\[1\]: a delay is written like '2ms'"),
        (["h2", "s1-p2", None, "fast"], r"links\[1\]: the rate in Mbit/s: Expected `float`, got `str`"),
        (["h2", "s1-p2", None, None, 100], r"links\[1\]: the loss in percent: Expected `float` <= 99"),
    ],
)
def test_impossible_links_are_refused(link: list[Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(json.dumps(a_topology(links=[["h1", "s1-p1"], link])))


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
