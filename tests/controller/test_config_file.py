"""The configuration: what it accepts, and that every mistake is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from p4reduce_controller.config import Config, ConfigError, load, override, parse
from p4reduce_controller.registry.tree import Tree, TreeSwitch

FILE = """
[switch]
p4runtime = "10.1.0.1:50051"
mac = "02:00:00:00:00:FE"

[controller]
heartbeat_timeout_s = 4
"""

ROOT = "[[switch]]\nname = 'root'\np4runtime = '127.0.0.1:1'\n"
LEAF = "[[switch]]\nname = 'leaf'\nparent = 'root'\nuplink_port = 9\n"
TREE = f"""{ROOT}trunk_address = '10.255.0.1'
trunk_mac = '02:00:00:00:01:01'
{LEAF}trunk_address = '10.255.0.2'
trunk_mac = '02:00:00:00:01:02'
flood = [3]
"""


def test_a_tree_of_switches_with_one_address_for_workers() -> None:
    root, leaf = parse(TREE).switches
    assert (root.name, root.parent, root.uplink_port, root.flood) == ("root", None, None, None)
    assert (leaf.name, leaf.parent, leaf.uplink_port, leaf.flood) == ("leaf", "root", 9, (3,))
    assert (root.address, root.mac_value) == (leaf.address, leaf.mac_value)
    assert (leaf.trunk_ip_value, leaf.trunk_mac_value) == (0x0AFF0002, 0x020000000102)


def test_mac_addresses_follow_from_addresses() -> None:
    root, leaf = parse(f"{ROOT}address = '10.0.0.1'\n{LEAF}address = '10.0.0.2'").switches
    assert (root.mac_value, root.trunk_mac_value) == (0x02000A000001,) * 2
    assert (leaf.mac_value, leaf.trunk_mac_value) == (0x02000A000002,) * 2
    root, leaf = parse(f"{ROOT}trunk_address = '10.0.0.2'\n{LEAF}trunk_address = '10.0.0.3'").switches
    assert root.mac_value == leaf.mac_value
    assert (root.trunk_mac_value, leaf.trunk_mac_value) == (0x02000A000002, 0x02000A000003)


def test_switches_on_one_host_need_no_more_than_other_udp_ports() -> None:
    root, leaf = parse(f"{ROOT}udp_port = 4000\n{LEAF}udp_port = 4001").switches
    assert (root.trunk_ip_value, root.trunk_mac_value) == (leaf.trunk_ip_value, leaf.trunk_mac_value)


def test_switches_side_by_side_need_name_p4runtime_and_address() -> None:
    node = "[[switch]]\nname = 'node{0}'\np4runtime = '10.0.0.{0}:9559'\naddress = '10.0.0.{0}'\n"
    second = "[[switch]]\nname = 'second'\naddress = '10.0.0.3'\nudp_port = 4000"
    config = parse(f"{node.format(2)}{node.format(3)}{second}")
    assert Tree(map(TreeSwitch, config.switches)).side_by_side == ("node2", "node3", "second")


def test_separate_trees_may_have_the_same_addresses() -> None:
    assert len(parse(f"{ROOT}[[switch]]\nname = 'other'").switches) == 2


def test_the_command_line_names_one_switch() -> None:
    assert [switch.pipeline for switch in override(parse(TREE), pipeline="small").switches] == ["small", "small"]
    for given in ({"p4runtime": "127.0.0.1:1"}, {"switch": "127.0.0.1:1"}):
        with pytest.raises(ConfigError, match="are of one switch, and the configuration has 2"):
            override(parse(TREE), **given)


def test_the_default_configuration_is_for_the_embedded_switch_on_loopback() -> None:
    config = load()
    assert config == Config() == parse("")
    assert config.switches[0].p4runtime == "127.0.0.1:9559"
    assert (config.switches[0].address, config.switches[0].udp_port) == ("127.0.0.1", 21072)
    assert config.controller.listen == "127.0.0.1:9600"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[swich]", "the file: Object contains unknown field `swich`"),
        ("[switch]\ndevice_id = -1", "switch.device_id: Expected `int` >= 0"),
        ("[switch]\nelection_id = 0", "switch.election_id: Expected `int` >= 1"),
        (f"[switch]\nelection_id = {2**128}", "switch: election_id must have at most 128 bits"),
        ("[switch]\ntofino_server = 'p4d'", "switch.tofino_server: must be stratum or bf_switchd, not 'p4d'"),
        ("[switch]\nelection_id = 'first'", "switch.election_id: Invalid enum value 'first'"),
        ("[switch]\nudp_port = 65536", "switch.udp_port: Expected `int` <= 65535"),
        ("[switch]\naddress = 'localhost'", "switch.address: must be an IPv4 address like 10.0.0.254, not 'localhost'"),
        ("[switch]\naddress = '224.0.0.1'", "switch.address: must be the address of one host"),
        ("[switch]\naddress = 1", "switch.address: expected a string, not 1"),
        ("[switch]\nmac = '02-00-00-00-00-01'", "switch.mac: must be a MAC address"),
        ("[switch]\nmac = '01:00:00:00:00:01'", "switch.mac: must be the address of one host, not the group"),
        ("[switch]\np4runtime = '9559'", "switch.p4runtime: must be HOST:PORT"),
        ("[controller]\nlisten = 'host:x'", "controller.listen: must be HOST:PORT"),
        ("[controller]\nmetrics = '70000'", "controller.metrics: must be HOST:PORT"),
        ("[controller]\nheartbeat_timeout_s = 3", "controller: heartbeat_timeout_s must be at least twice"),
        ("[forwarding]\nflood = [1, 511]", "forwarding.flood[1]: Expected `int` <= 509"),
        ("[forwarding]\nflood = [1, 1]", "forwarding: flood names a port twice"),
        (
            "[[ports]]\nnumber = 1\nmac = '02:00:00:00:00:09'\n[[ports]]\nnumber = 2\nmac = '02:00:00:00:00:09'",
            "02:00:00:00:00:09 is behind two ports",
        ),
        ("switch = []", "switch: Expected `array` of length >= 1"),
        ("[[switch]]\nname = 'a b'", "switch[0].name: Expected `str` matching regex"),
        (f"{ROOT}{LEAF}mac = 1", "switch[1].mac: expected a string, not 1"),
        ("[switch]\nparent = 'root'", "uplink_port of switch switch must be its port towards its parent root"),
        ("[switch]\nuplink_port = 3", "uplink_port of switch switch needs its parent"),
        ("[switch]\nparent = 'root'\nuplink_port = 3", "the parent of switch switch is 'root'; there are switch"),
        (f"{ROOT}{LEAF}{LEAF}", "two switches have the name leaf: give each a name of its own"),
        (
            f"{ROOT}{LEAF}device_id = 1\np4runtime = '127.0.0.1:1'",
            "root and leaf have the same p4runtime and device_id",
        ),
        (f"{ROOT}parent = 'leaf'\nuplink_port = 1\n{LEAF}", "the parents of the switches leaf, root form a cycle"),
        (
            f"{ROOT}trunk_address = '10.0.0.2'\n{LEAF}",
            "trunk_address of switch leaf, 127.0.0.1, is one of switch root too",
        ),
        (f"{ROOT}mac = '02:00:0a:00:00:09'\n{LEAF}address = '10.0.0.9'", "trunk_mac of switch root, 02:00:0a:00:00:09"),
        (f"{ROOT}{LEAF}udp_port = 4000", "one of them has the UDP port 21072, from which the other one takes nothing"),
        ("[switch]\nflood = [1, 1]", "switch: flood names a port twice"),
        (f"{TREE}[[ports]]\nnumber = 1\nmac = '02:00:00:00:00:09'", "a port of switch ''; there are leaf, root"),
    ],
)
def test_errors_name_the_key_and_the_value(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        load(path)
    path.write_text("[x]")
    with pytest.raises(ConfigError, match=r"broken\.toml: the file: Object contains unknown field `x`"):
        load(path)


def test_the_command_line_overrides_the_file() -> None:
    config = override(parse(FILE), listen="127.0.0.1:1", p4runtime=None, pipeline="default")
    assert config.controller.listen == "127.0.0.1:1"
    assert config.controller.heartbeat_timeout_s == 4.0
    assert (config.switches[0].p4runtime, config.switches[0].pipeline) == ("10.1.0.1:50051", "default")
    assert config.switches[0].mac == "02:00:00:00:00:fe"
    with pytest.raises(ConfigError, match=r"controller\.listen"):
        override(Config(), listen="nowhere")


def test_state_goes_to_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert Config().controller.state_path == Path("/state/p4reduce")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert Config().controller.state_path == Path("/home/somebody/.local/state/p4reduce")
