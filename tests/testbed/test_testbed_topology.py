"""The topology file: what is read from it, and what is refused with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from p4reduce_lab.shaping import Shape
from p4reduce_testbed import cli
from p4reduce_testbed.errors import TopologyError
from p4reduce_testbed.topology import load, parse


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


def refusal(**changes: Any) -> str:
    with pytest.raises(TopologyError) as caught:
        parse(json.dumps(a_topology(**changes)))
    return str(caught.value)


def with_links(*links: Any) -> str:
    return refusal(links=list(links))


def with_host(**entry: Any) -> str:
    hosts = a_topology()["hosts"]
    hosts["h2"] |= entry
    return refusal(hosts=hosts)


def test_ranks_are_in_the_order_of_hosts_and_ports_of_links() -> None:
    document = a_topology(links=[["s1-p9", "h2"], ["h1", "s1-p4"]])
    document["hosts"] = dict(reversed(document["hosts"].items()))
    topology = parse(json.dumps(document))
    assert [(host.name, host.rank, host.port) for host in topology.hosts] == [("h2", 0, 9), ("h1", 1, 4)]
    assert [topology.switch.interface(host.port) for host in topology.hosts] == ["s1-eth9", "s1-eth4"]
    assert topology.hosts[0].ip == "10.0.0.2" and str(topology.network) == "10.0.0.0/24"


def test_the_switch_has_an_address_of_its_own() -> None:
    assert parse(json.dumps(a_topology())).switch.ip == "10.0.0.254"
    given = {"s1": {"ip": "10.0.0.9/24", "mac": "02:00:00:00:00:AA"}}
    switch = parse(json.dumps(a_topology(switches=given))).switch
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


def test_keys_of_the_p4_tutorials_are_accepted() -> None:
    hosts = a_topology()["hosts"]
    hosts["h1"]["commands"] = ["ip route add default via 10.0.0.254"]
    switches = {"s1": {"runtime_json": "s1-runtime.json"}}
    topology = parse(json.dumps(a_topology(hosts=hosts, switches=switches)))
    assert topology.hosts[0].commands == ("ip route add default via 10.0.0.254",)


def test_unknown_keys_are_named() -> None:
    assert "the file: Object contains unknown field `host`" in refusal(host={})
    assert "hosts.h2: Object contains unknown field `rate`" in with_host(rate=3)
    assert "switches.s1: Object contains unknown field `port`" in refusal(switches={"s1": {"port": 1}})


def test_the_error_names_a_missing_key() -> None:
    for section in ("hosts", "switches", "links"):
        document = a_topology()
        del document[section]
        with pytest.raises(TopologyError, match=f"^the file: Object missing required field `{section}`"):
            parse(json.dumps(document))
    hosts = a_topology()["hosts"]
    del hosts["h2"]["mac"]
    assert "hosts.h2: Object missing required field `mac`" in refusal(hosts=hosts)
    assert "host h2 has no link" in with_links(["h1", "s1-p1"])


def test_the_error_names_a_value_of_another_type() -> None:
    for section in ("hosts", "switches"):
        assert f"{section}: Expected `object`, got `int`" in refusal(**{section: 3})
    assert "links: Expected `array`, got `int`" in refusal(links=3)
    assert "hosts.h2: Expected `object`, got `str`" in refusal(hosts=a_topology()["hosts"] | {"h2": "10.0.0.2"})
    assert "hosts.h2.commands: Expected `array`, got `str`" in with_host(commands="true")
    assert "hosts.h2.commands[1]: Expected `str`, got `int`" in with_host(commands=["true", 3])
    assert "hosts.h2.ip: Expected `str`, got `int`" in with_host(ip=3)
    assert "switches.s1.ip must be like '10.0.0.254', not 's1'" in refusal(switches={"s1": {"ip": "s1"}})
    with pytest.raises(TopologyError, match="the file: Expected `object`, got `int`"):
        parse("3")


def test_exactly_one_switch() -> None:
    assert "there are 2; the testbed aggregates on exactly one" in refusal(switches={"s1": {}, "s2": {}})
    assert "there are 0" in refusal(switches={})


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (["h1", "h2"], r"links\[1\] must join a host and a port of s1"),
        (["h2", "s2-p1"], r"links\[1\] must join a host and a port of s1"),
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
    with pytest.raises(TopologyError, match=words):
        parse(json.dumps(a_topology(links=[["h1", "s1-p1"], link])))


def test_impossible_addresses_are_refused() -> None:
    assert "put all hosts into one subnet" in with_host(ip="10.0.1.2/24")
    assert "needs its subnet, like 10.0.0.2/24" in with_host(ip="10.0.0.2")
    assert "hosts.h2.ip must be like '10.0.0.1/24'" in with_host(ip="h2")
    assert "hosts.h2.ip must be like '10.0.0.1/24'" in with_host(ip="10.0.0.2/33")
    assert "the ip 10.0.0.1 is given to two nodes" in with_host(ip="10.0.0.1/24")
    assert "the ip 10.0.0.254 is given to two nodes" in with_host(ip="10.0.0.254/24")
    assert "no host's address" in with_host(ip="10.0.0.255/24")
    assert "the mac 02:00:00:00:01:01 is given to two nodes" in with_host(mac="02:00:00:00:01:01")
    assert "group address" in with_host(mac="03:00:00:00:01:02")
    assert "hosts.h2.mac: must be a MAC address" in with_host(mac="1")
    assert "not in the hosts' 10.0.0.0/24" in refusal(switches={"s1": {"ip": "10.0.1.1"}})


def test_names_that_interfaces_cannot_have_are_refused() -> None:
    hosts = a_topology()["hosts"]
    hosts["a host"] = hosts.pop("h2")
    links = [["h1", "s1-p1"], ["a host", "s1-p2"]]
    assert "hosts.a host: a name is a letter" in refusal(hosts=hosts, links=links)
    assert "too long" in refusal(switches={"switch123": {}}, links=[["h1", "switch123-p1"], ["h2", "switch123-p123"]])


def test_a_file_that_is_missing_or_not_json_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="not valid JSON"):
        parse("{")
    with pytest.raises(TopologyError, match=r"cannot read the topology .*nowhere\.json"):
        load(tmp_path / "nowhere.json")
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(TopologyError, match=r"empty\.json: the file: Object missing required field `hosts`"):
        load(tmp_path / "empty.json")


@pytest.mark.parametrize("path", sorted(cli.TOPOLOGIES.glob("*.json")), ids=lambda path: path.stem)
def test_the_packaged_topologies(path: Path) -> None:
    assert len(load(path).hosts) >= 2
