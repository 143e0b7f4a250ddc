"""The configuration: what it accepts, and that every mistake is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from p4reduce_controller.config import Config, ConfigError, PortConfig, load, override, parse

EVERYTHING = """
[switch]
p4runtime = "10.1.0.1:50051"
device_id = 7
election_id = 3
pipeline = "small"
address = "10.0.0.254"
mac = "02:00:00:00:00:FE"
udp_port = 21073
connect_timeout_s = 3
hellos_a_second = 10
hello_burst = 20

[controller]
listen = "0.0.0.0:9601"
state_dir = "/var/lib/p4reduce"
heartbeat_interval_s = 0.5
heartbeat_timeout_s = 4
hello_interval_s = 0.05

[[ports]]
number = 1
mac = "00:00:00:00:00:01"

[[ports]]
number = 2
mac = "00:00:00:00:00:02"

[forwarding]
learn = false
flood = [1, 2, 3]
"""


def test_no_file_suits_the_software_switch_on_loopback() -> None:
    config = load()
    assert config == Config() == parse("")
    assert config.switch.p4runtime == "127.0.0.1:9559"
    assert (config.switch.address, config.switch.udp_port) == ("127.0.0.1", 21072)
    assert config.controller.listen == "127.0.0.1:9600"


def test_every_key_is_read(tmp_path: Path) -> None:
    path = tmp_path / "p4reduce.toml"
    path.write_text(EVERYTHING)
    config = load(path)
    assert config.switch.p4runtime == "10.1.0.1:50051"
    assert (config.switch.device_id, config.switch.election_id, config.switch.udp_port) == (7, 3, 21073)
    assert config.switch.mac == "02:00:00:00:00:fe"
    assert config.switch.connect_timeout_s == 3.0
    assert (config.switch.hellos_a_second, config.switch.hello_burst) == (10, 20)
    assert config.controller.state_path == Path("/var/lib/p4reduce")
    assert config.controller.heartbeat_timeout_s == 4.0
    assert config.ports == (PortConfig(1, "00:00:00:00:00:01"), PortConfig(2, "00:00:00:00:00:02"))
    assert config.forwarding.flood == (1, 2, 3)
    assert not config.forwarding.learn


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[swich]", "unknown key swich; the keys are switch, controller, security, quotas, ports, forwarding"),
        ("[switch]\nport = 1", "unknown key switch.port; the keys of switch are p4runtime, device_id"),
        ("[[ports]]\nnumber = 1\nname = 'x'", "unknown key ports[0].name"),
        ("[[ports]]\nnumber = 1", "ports[0].mac is missing"),
        ("[ports]\nnumber = 1", "ports must be written as [[ports]]"),
        ("ports = [1]", "ports must be written as [[ports]]"),
        ("switch = 3", "switch must be a table"),
        ("[switch]\ndevice_id = '1'", "switch.device_id must be a whole number, not '1'"),
        ("[switch]\ndevice_id = true", "switch.device_id must be a whole number, not True"),
        ("[switch]\ndevice_id = -1", "switch.device_id must be between 0 and"),
        ("[switch]\nelection_id = 0", "switch.election_id must be between 1 and"),
        (f"[switch]\nelection_id = {2**128}", "switch.election_id must be between 1 and"),
        ("[switch]\nelection_id = 'first'", "switch.election_id must be a whole number"),
        ("[switch]\npipeline = 3", "switch.pipeline must be a string, not 3"),
        ("[switch]\npipeline = ''", "switch.pipeline must not be empty"),
        ("[switch]\nudp_port = 65536", "switch.udp_port must be between 1 and 65535, not 65536"),
        ("[switch]\naddress = 'localhost'", "switch.address must be an IPv4 address"),
        ("[switch]\naddress = '224.0.0.1'", "switch.address must be the address of one host"),
        ("[switch]\nmac = '02-00-00-00-00-01'", "switch.mac must be a MAC address"),
        ("[switch]\nmac = '01:00:00:00:00:01'", "switch.mac must be the address of one host, not the group"),
        ("[switch]\np4runtime = '9559'", "switch.p4runtime must be HOST:PORT"),
        ("[switch]\nhello_burst = 0", "switch.hello_burst must be"),
        ("[switch]\nconnect_timeout_s = 'soon'", "switch.connect_timeout_s must be a number of seconds"),
        ("[controller]\nlisten = 'host:x'", "controller.listen must be HOST:PORT"),
        ("[controller]\nlisten = ':70000'", "controller.listen must be HOST:PORT"),
        ("[controller]\nhello_interval_s = 0", "controller.hello_interval_s must be more than 0"),
        ("[controller]\nheartbeat_timeout_s = nan", "controller.heartbeat_timeout_s must be more than 0"),
        ("[controller]\nheartbeat_timeout_s = 3", "must be at least twice controller.heartbeat_interval_s"),
        ("[security]\nca = 1", "security.ca must be a string, not 1"),
        ("[security]\ninsecure = 1", "security.insecure must be true or false, not 1"),
        ("[security]\ncertificates = 'x'", "unknown key security.certificates"),
        ("[quotas]\njobs = 0", "quotas.jobs must be between 1 and 255, not 0"),
        ("[quotas]\nslots = -1", "quotas.slots must be between 0 and 32768"),
        ("[quotas]\njoins_a_minute = 1.5", "quotas.joins_a_minute must be a whole number"),
        ("[forwarding]\nlearn = 1", "forwarding.learn must be true or false, not 1"),
        ("[forwarding]\nflood = 1", "forwarding.flood must be a list of port numbers"),
        ("[forwarding]\nflood = [1, 'x']", "forwarding.flood[1] must be a whole number"),
        ("[forwarding]\nflood = [1, 511]", "forwarding.flood[1] must be between 0 and 509"),
        ("[forwarding]\nflood = [1, 1]", "forwarding.flood names a port twice"),
        (
            "[[ports]]\nnumber = 1\nmac = '02:00:00:00:00:09'\n[[ports]]\nnumber = 2\nmac = '02:00:00:00:00:09'",
            "02:00:00:00:00:09 is behind two ports",
        ),
        ("[switch", "not valid TOML"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        load(path)
    path.write_text("[x]")
    with pytest.raises(ConfigError, match=r"broken\.toml: unknown key x;"):
        load(path)


def test_the_command_line_overrides_the_file() -> None:
    config = override(parse(EVERYTHING), listen="127.0.0.1:1", p4runtime=None, pipeline="default")
    assert config.controller.listen == "127.0.0.1:1"
    assert config.controller.heartbeat_timeout_s == 4.0
    assert (config.switch.p4runtime, config.switch.pipeline) == ("10.1.0.1:50051", "default")
    with pytest.raises(ConfigError, match=r"controller\.listen"):
        override(Config(), listen="nowhere")


def test_state_goes_to_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert Config().controller.state_path == Path("/state/p4reduce")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert Config().controller.state_path == Path("/home/somebody/.local/state/p4reduce")
