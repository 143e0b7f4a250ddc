"""The service EgressQueues, and the command that calls it: rates and depths while the switch runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click.testing
import grpc
import pytest

from conformance.case import PROGRAMS
from p4reduce_switch.bmv2 import runtime_cli
from p4reduce_switch.ports.ethernet import EthernetPorts
from p4reduce_switch.program import QueueSettings
from p4reduce_switch.queues import queues_pb2 as q
from p4reduce_switch.queues import queues_pb2_grpc
from p4reduce_switch.switch import Switch
from rigs.certificates import Bench
from rigs.limits import LIMIT_S
from rigs.p4rt import served
from rigs.ports import own_address

QUEUES = (PROGRAMS / "timed" / "queues.json").read_bytes()
PLAIN = (PROGRAMS / "egress_rewrite.json").read_bytes()


class Interfaces(EthernetPorts):
    """Ports 1 to 3, without sockets."""

    def __init__(self) -> None:
        super().__init__({})

    @property
    def interfaces(self) -> dict[int, str]:
        return {1: "veth1", 2: "veth2", 3: "veth3"}


Cli = Callable[..., click.testing.Result]


@pytest.fixture
def switch() -> Switch:
    """A switch with two queues for each port, and the program that reads them; `served` closes it."""
    one = Switch(cpu_port=255, queues=QueueSettings(priorities=2))
    one.add_ports(Interfaces())
    one.install(one.load(QUEUES))
    return one


@pytest.fixture
def cli(switch: Switch) -> Iterator[Cli]:
    """The command, with the switch's address; `lines` are its stdin."""

    def run(*words: str, lines: str = "") -> click.testing.Result:
        arguments = ["--grpc-addr", one.address, *words]
        return click.testing.CliRunner().invoke(runtime_cli.main, arguments, input=lines)

    with served(switch, queue_service=True) as one:
        yield run


def taken(switch: Switch, port: int, priority: int, packets: int = 100) -> int:
    """Return how many packets this queue takes."""
    return sum(switch.queues.push(port, priority, None, now_ns=0) for _ in range(packets))


def test_a_depth_is_for_all_queues_a_port_s_or_one(switch: Switch, cli: Cli) -> None:
    for line in ("set_queue_depth 30", "set_queue_depth 20 2", "set_queue_depth 10 2 1"):
        done = cli(*line.split())
        assert (done.exit_code, done.output) == (0, "")
    found = [taken(switch, port, priority) for port in (1, 2, 255) for priority in (0, 1)]
    assert found == [30, 30, 20, 10, 30, 30]


def test_a_rate_holds_from_the_next_packet_on(switch: Switch, cli: Cli) -> None:
    switch.queues.push(2, 0, None, now_ns=0)
    assert cli(lines="set_queue_rate 100\nset_queue_rate 0 3\n").exit_code == 0
    assert switch.queues.next_ns() == 0
    switch.queues.push(2, 0, None, now_ns=0)
    switch.queues.pop(0)
    assert switch.queues.next_ns() == 10_000_000
    switch.queues.pop(10_000_000)
    late = 1 << 62  # after the clock by which queues of port 3 were made
    for _ in range(2):
        switch.queues.push(3, 1, None, now_ns=late)
    assert switch.queues.next_ns() == late
    switch.queues.pop(late)
    assert switch.queues.next_ns() == late


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("set_queue_depth 5 4", "the switch has no port 4; its ports: 1, 2, 3"),
        ("set_queue_depth 5 512", "port 512 is outside 0..511"),
        ("set_queue_rate 5 2 2", "there is no priority 2: a port has 2 (--priority-queues)"),
        ("set_queue_rate", "expected set_queue_rate <rate_pps> [<egress_port> [<priority>]]"),
        ("set_queue_depth 1 2 3 4", "expected set_queue_depth <nb_pkts> [<egress_port> [<priority>]]"),
        ("set_queue_depth ten", "in decimal numbers from 0"),
        ("set_queue_depth 1 -2", "in decimal numbers from 0"),
        ("set_queue_depth 4294967296", "the number is too large"),
        ("set_queue_rate 18446744073709551616", "the number is too large"),
        ("set_queue_rate 1 4294967296", "the number is too large"),
        ("table_dump MyIngress.t", "table_dump: there are only set_queue_rate and set_queue_depth"),
    ],
)
def test_a_wrong_line_changes_nothing_and_is_explained(switch: Switch, cli: Cli, line: str, message: str) -> None:
    done = cli(lines=f"# comment\n\n{line}\nset_queue_depth 7 1 1\n")
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert taken(switch, 1, 1) == 7, "the lines after it are carried out"
    assert taken(switch, 2, 1) == 64


def test_a_priority_without_a_port_is_refused(switch: Switch) -> None:
    with served(switch, queue_service=True) as one, grpc.insecure_channel(one.address) as channel:
        stub = queues_pb2_grpc.EgressQueuesStub(channel)
        with pytest.raises(grpc.RpcError) as error:
            stub.SetDepth(q.SetDepthRequest(queues=q.Queues(priority=1), packets=3), timeout=LIMIT_S)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]
    assert one.server.counters().refusals == {"INVALID_ARGUMENT": 1}


def test_a_program_without_queues_is_named_with_what_to_do(switch: Switch, cli: Cli) -> None:
    switch.install(switch.load(PLAIN))
    done = cli("set_queue_rate", "100")
    assert done.exit_code == 1
    assert "--queue-depth 64" in done.stderr
    assert not switch.queues.are_set


def test_before_any_program_a_rate_gives_the_next_one_queues(cli: Cli, switch: Switch) -> None:
    switch.program = None
    assert cli("set_queue_rate", "100").exit_code == 0
    assert switch.load(PLAIN).queues is switch.queues


@pytest.mark.parametrize("words", [("",), (" ", " ")])
def test_an_empty_command_is_an_error(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli(*words)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, "Error: COMMAND is empty")


def test_a_switch_without_the_service_is_named(switch: Switch) -> None:
    """`p4reduce switch run`, whose own program would become slow, does not serve it."""
    with served(switch) as one:
        done = click.testing.CliRunner().invoke(runtime_cli.main, ["--grpc-addr", one.address, "set_queue_depth", "3"])
    message = f"Error: at {one.address} is no p4reduce-simple-switch, or an older one\n"
    assert (done.exit_code, done.stderr) == (1, message)
    assert taken(switch, 1, 0) == 64


def test_over_tls_only_controllers_set_queues(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    def run(role: str) -> click.testing.Result:
        files = bench.of(role)
        tls = ["--ssl", "--cacert", files.ca, "--cert", files.certificate, "--private-key", files.key]
        line = f"set_queue_depth 3 --grpc-addr {switch.address} --server-name switch.p4reduce".split()
        return click.testing.CliRunner().invoke(runtime_cli.main, [*line, *map(str, tls)])

    with served(security=bench.of("switch"), queue_service=True) as switch:
        refused, done = run("worker"), run("controller")
    assert (refused.exit_code, done.exit_code) == (1, 0), done.output
    assert "controller role" in refused.stderr
    assert taken(switch.switch, 1, 0) == 3


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("set_queue_rate 5", 1, "no switch answers at {address}"),
        ("set_queue_rate 5 --cert x", 2, "not --ssl"),
        ("set_queue_rate 5 --ssl --cert x", 2, "--cert and --private-key belong together"),
        ("set_queue_rate 5 --ssl --cacert /no/ca.pem", 1, "cannot read /no/ca.pem"),
        ("set_queue_rate 5 --grpc-addr 9559", 2, "HOST:PORT"),
        ("", 2, "neither a COMMAND nor a stdin"),
    ],
)
def test_the_command_without_a_switch(
    words: str, status: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = own_address()
    monkeypatch.setattr(sys, "stdin", None)  # as after <&-
    with pytest.raises(SystemExit) as ended:
        runtime_cli.main(["--grpc-addr", address, *words.split()])
    assert ended.value.code == status
    assert message.format(address=address) in capsys.readouterr().err
