"""The `p4reduce` command against a controller whose switch is in memory; and `p4reduce certs`.

`p4reduce switch trace --job`: a job's frames in the terms of the protocol. `p4reduce top`: rates from two samples; `job
show --slots`: what each rank waits for, as its heartbeats say.
"""

from __future__ import annotations

import io
import json
import re
import stat
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import click.testing
import msgspec
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from p4reduce.doctor.checks import RankSpec, run_checks
from p4reduce_contracts.cli import main
from p4reduce_contracts.jobs.answers import (
    Count,
    DropStats,
    JobInfo,
    JobList,
    JobStats,
    MemberInfo,
    Stats,
    Usage,
    WaitingSlot,
)
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import UnknownJobError
from p4reduce_controller.cli import trace_view
from p4reduce_controller.cli.top import Look, screen
from p4reduce_runtime.security import Security
from p4reduce_switch.program import PacketTrace
from p4reduce_switch.run import SwitchError, SwitchOptions
from rigs.fake_switch_client import Running, create_and_form, form, make_config, rows, shown
from rigs.pipeline import JOB, PipelineRig, rank_port


@pytest.fixture(autouse=True)
def compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no command start a process that compiles, where kernels are not compiled ahead."""
    monkeypatch.setattr("p4reduce_runtime.kernels.warm_in_background", nullcontext)


def p4reduce(*arguments: str, controller: str | None = None, **env: str) -> Result:
    given = ["--controller", controller] if controller else []
    return CliRunner().invoke(main, [*arguments, *given], env=env, catch_exceptions=False)


def check_refused(result: Result, message: str) -> None:
    assert result.exit_code == 1 and message in result.stderr and result.stderr.count("\n") == 1


def test_a_job_in_tables(running: Running) -> None:
    at = running.address
    made = p4reduce("job", "create", "train", "--world-size", "2", "--slots", "4", controller=at)
    assert made.stdout == "job train (id 1): 2 ranks, slots 0..3; waiting for its ranks to join\n"
    with JobClient(at) as client:
        ticket = client.join("train", 0, 2)
        text = shown(running, "job", "show", "train")
        client.leave(ticket.nonce)
        form(running, client, "train", 2)
    assert "FORMING, slots 0..3" in text
    assert "joined, no HELLO yet" in text
    assert (
        "\nwaits: rank 1 did not join; no HELLO of rank 0 came through the switch, expected at 127.0.0.1:21072" in text
    )
    assert "not joined" in text
    text = shown(running, "job", "show", "train")
    assert "ACTIVE, epoch 1" in text
    assert "10.0.0.11:4001" in text
    listed = p4reduce("job", "list", controller=at).stdout
    assert listed.splitlines()[-1] == "12 of 16 slots free"
    assert rows(listed, "train") == [["train", "1", "ACTIVE", "1", "2", "2", "0..3", "1", "-", "-"]]
    assert p4reduce("job", "remove", "train", controller=at).stdout == "job train removed\n"
    assert "16 of 16 slots free" in p4reduce("job", "list", controller=at).stdout


def test_what_a_job_was_is_shown_after_it_has_ended(running: Running) -> None:
    at = running.address
    with JobClient(at) as client:
        client.create_job("train", 2, 4, ephemeral=True)
        client.create_job("shard-1-0", 2, 2, part_of="train")
        tickets = [client.join("train", rank, 2, host=f"machine{rank}") for rank in range(2)]
        for ticket in tickets:
            running.hello(ticket.job_id, ticket.nonce, ticket.rank)
        client.wait_lease(tickets[0].nonce, 10.0)
        client.heartbeat(tickets[1].nonce, usage=Usage(9, 5000, 4000, 1))
        listed = p4reduce("job", "list", controller=at).stdout
        assert "shard-1-0" not in listed, "a shard is a part of its job"
        text = shown(running, "job", "show", "train")
        assert "\nhost machine0: rank 0\nhost machine1: rank 1\nshard shard-1-0 (id 2): FORMING, 2 hosts, slots" in text
        of_shard = p4reduce("job", "show", "shard-1-0", controller=at).stdout
        assert "\nsums a shard of job train, whose ranks count it\n" in of_shard and "collectives" not in of_shard
        stats = p4reduce("stats", controller=at).stdout
        assert [cells[-1] for cells in rows(stats, "train")] == ["2"]
        assert re.search(r"│ train  .*\n│ train: shard-1-0 ", stats)
        client.leave(tickets[0].nonce, usage=Usage(10, 6000, 4500, 2), finished=True)
        client.remove_job("train")
        client.leave(tickets[1].nonce, usage=Usage(10, 5100, 4500, 1))
    ended = p4reduce("job", "list", "--ended", controller=at).stdout
    assert [cells[2:] for cells in rows(ended, "train")] == [["2", "2", "10", "11100", "9000", "3", "0"]]
    text = shown(running, "job", "show", "train")
    assert text.startswith("job train (id 1): ENDED at 2") and "host machine1: rank 1" in text
    assert "2 ranks counted: 10 collectives, 11100 B up, 9000 B down, 3 retransmissions" in text
    assert "reset" not in text, "the end was a normal one"
    with JobClient(at) as client, pytest.raises(UnknownJobError):
        client.get_job("")
    assert run_checks(at, RankSpec("train", 0, 2))[2].found == "train was removed"


def test_stats(running: Running) -> None:
    at = running.address
    p4reduce("job", "create", "train", "--world-size", "1", controller=at)
    assert p4reduce("stats", controller=at).stdout.splitlines()[-1] == "no frames dropped"
    with JobClient(at) as client:
        form(running, client, "train", 1)
    running.client.counters["MainIngress.contributions", 1] = (12, 3456)
    running.client.counters["MainIngress.drops", 6] = (7, 89)
    table = p4reduce("stats", "--job", "train", controller=at).stdout
    assert "3456" in table
    assert "EPOCH" in table
    assert "STALE" not in table
    assert "STALE" in p4reduce("stats", "--all-drops", controller=at).stdout
    counted = json.loads(shown(running, "stats", "--json"))
    assert counted["jobs"][0]["contributions"] == {"packets": 12, "bytes": 3456}
    assert {drop["reason"]: drop["count"] for drop in counted["drops"]}["EPOCH"] == {"packets": 7, "bytes": 89}


NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    "command",
    [
        ["job", "create", "new", "--world-size", "1", "--slots", "1"],
        ["job", "show", "train"],
        ["job", "list"],
        ["job", "remove", "train"],
        ["stats"],
    ],
    ids=" ".join,
)
def test_the_controllers_address_by_option_and_environment(running: Running, command: list[str]) -> None:
    at = running.address
    assert p4reduce("job", "create", "train", "--world-size", "1", "--slots", "1", controller=at).exit_code == 0
    elsewhere = p4reduce(*command, controller=NOBODY, P4REDUCE_CONTROLLER=at)
    assert f"no controller at {NOBODY}" in elsewhere.stderr
    elsewhere = p4reduce(*command, P4REDUCE_CONTROLLER=NOBODY)
    assert f"no controller at {NOBODY}" in elsewhere.stderr
    done = p4reduce(*command, controller=at, P4REDUCE_CONTROLLER="nonsense")
    assert (done.exit_code, done.stderr) == (0, "")


def test_an_invalid_variable_is_an_error_of_the_commands_that_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = p4reduce("job", "list", P4REDUCE_CONTROLLER="nonsense")
    assert wrong.exit_code == 2
    assert "P4REDUCE_CONTROLLER'): must be HOST:PORT like 127.0.0.1:9600, not 'nonsense'" in wrong.stderr
    monkeypatch.setattr("p4reduce_switch.run.run_switch", lambda options, ready: None)
    assert p4reduce("switch", "run", P4REDUCE_CONTROLLER="nonsense").exit_code == 0


def test_a_controller_without_a_switch_ends_with_one_line(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    (tmp_path / "p4reduce.toml").write_text(
        f"[switch]\npipeline = '{config.switches[0].pipeline}'\nconnect_timeout_s = 0.2\n"
        f"[controller]\nlisten = '127.0.0.1:0'\nstate_dir = '{tmp_path}'\n"
    )
    result = p4reduce("controller", "run", "--config", str(tmp_path / "p4reduce.toml"), "--p4runtime", "127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].startswith("Error: no P4Runtime switch at 127.0.0.1:1 for 0.2 s: start one")


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        ([], "[switch]\nport = 1", "switch: Object contains unknown field `port`"),
        (["--pipeline", "nosuch"], "", "there is no pipeline 'nosuch'"),
        ([], "[switch]\npipeline = './nosuch'", "there is no pipeline folder"),
    ],
)
def test_controller_run_refuses_a_bad_configuration(
    tmp_path: Path, options: list[str], text: str, message: str
) -> None:
    path = tmp_path / "p4reduce.toml"
    path.write_text(text)
    check_refused(p4reduce("controller", "run", "--config", str(path), *options), message)


def test_a_private_job_needs_its_tokens(running: Running, tmp_path: Path) -> None:
    at, file = running.address, tmp_path / "token"
    made = p4reduce("job", "create", "mine", "--world-size", "1", "--token-file", str(file), controller=at)
    assert made.exit_code == 0
    owner = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert owner not in made.stdout
    assert f"owner's token, to remove it: in {file}" in made.stdout
    (member,) = re.findall(r"members' token, to join it: (\S+)", made.stdout)
    with JobClient(at, token=member) as client:
        form(running, client, "mine", 1)
    for token, seen in ((None, False), ("wrong", False), (member, True), (owner, True)):
        text = shown(running, "job", "show", "mine", *(["--token", token] if token else []))
        assert ("10.0.0.10:4000" in text) is ("epoch 1" in text) is seen
        assert ("joined, hidden without a token" in text) is not seen
    for token in ("wrong", member):
        refused = p4reduce("job", "remove", "mine", controller=at, P4REDUCE_TOKEN=token)
        assert (refused.exit_code, refused.stderr) == (
            1,
            "Error: job mine is private: to remove it takes its owner's token (--token), "
            "and the token given is not that\n",
        )  # fmt: skip
    assert p4reduce("job", "remove", "mine", controller=at, P4REDUCE_TOKEN=owner).exit_code == 0


def test_a_token_is_shown_once(running: Running) -> None:
    made = json.loads(shown(running, "job", "create", "mine", "--world-size", "1", "--private", "--json"))
    assert len(made["owner_token"]) >= 32 <= len(made["member_token"])
    for token in (made["owner_token"], ""):
        job = json.loads(shown(running, "job", "show", "mine", "--token", token, "--json"))
        assert (job["private"], job["owner_token"], job["member_token"]) == (True, "", "")


def test_a_file_with_a_token_is_not_overwritten_and_none_is_left_without_one(running: Running, tmp_path: Path) -> None:
    at, file = running.address, tmp_path / "token"
    create = ("job", "create", "mine", "--world-size", "1", "--token-file", str(file))
    file.write_text("x")
    assert "is there already" in p4reduce(*create, controller=at).stderr
    assert json.loads(shown(running, "job", "list", "--json"))["jobs"] == []
    file.unlink()
    assert p4reduce("job", "create", "mine", "--world-size", "1", controller=at).exit_code == 0
    assert "there is a job 'mine' already" in p4reduce(*create, controller=at).stderr
    assert not file.exists()


def test_every_command_says_what_it_does() -> None:
    def walk(command: click.Command) -> Iterator[click.Command]:
        yield command
        if isinstance(command, click.Group):
            with click.Context(command) as context:
                for name in command.list_commands(context):
                    found = command.get_command(context, name)
                    assert found is not None
                    yield from walk(found)

    commands = list(walk(main))
    assert {"main", "controller", "create", "demo", "stats", "switch", "testbed", "train"} <= {
        command.name for command in commands
    }
    for command in commands:
        assert command.help, command.name
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, (command.name, option.name)


def test_switch_run_passes_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[SwitchOptions] = []
    monkeypatch.setattr("p4reduce_switch.run.run_switch", lambda options, ready: calls.append(options))
    assert p4reduce("switch", "run", "-i", "1@veth1", "-i", "2@veth2", "--pipeline", "small").exit_code == 0
    assert calls == [SwitchOptions(pipeline="small", interfaces=("1@veth1", "2@veth2"))]
    assert p4reduce("switch", "run").exit_code == 0
    assert calls[1] == SwitchOptions(), "the command's defaults are those of the switch"


def test_switch_run_errors_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(options: SwitchOptions, ready: object) -> None:
        raise SwitchError("the port\nis taken")

    monkeypatch.setattr("p4reduce_switch.run.run_switch", refuse)
    result = p4reduce("switch", "run")
    assert (result.exit_code, result.stderr) == (1, "Error: the port is taken\n")


def test_demo_passes_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[dict[str, object]] = []
    monkeypatch.setattr("p4reduce_lab.demo.run_demo", lambda **options: calls.append(options))
    assert p4reduce("demo", "--out", str(tmp_path), "--seeds", "3", "--drop-chance", "0.01").exit_code == 0
    shape = {"epochs": None, "pipeline": "default", "racks": 1}
    assert calls == [{"out": tmp_path, "seeds": 3, "drop_chance": 0.01, **shape}]
    assert p4reduce("demo", "--watch", "--drop-chance", "0.01").exit_code == 2


def test_the_switch_address_for_workers_must_be_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(
        "p4reduce_controller.service.process.run_controller", lambda settings, ready: given.append(settings)
    )
    assert p4reduce("controller", "run", "--switch", "10.0.0.254:4000").exit_code == 0
    assert (given[0].switches[0].address, given[0].switches[0].udp_port) == ("10.0.0.254", 4000)
    refused = p4reduce("controller", "run", "--switch", "localhost:4000")
    check_refused(refused, "Error: switch.address: must be an IPv4 address like 10.0.0.254, not 'localhost'\n")
    assert len(given) == 1


def certs(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["certs", *map(str, arguments)])


def test_an_authority_and_a_certificate_for_each_program(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    made = certs("init", folder)
    assert made.exit_code == 0
    files = [Path(line).name for line in made.stdout.splitlines()[:-1]]
    assert files == [f"{name}.{kind}" for name in ("ca", "controller", "switch", "worker") for kind in ("pem", "key")]
    assert "keep ca.key secret" in made.stdout
    assert certs("add", folder, "alice").exit_code == 0
    for name in ("controller", "switch", "worker", "alice"):
        Security(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key").check()


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    certs("init", tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    again, twice = certs("init", tmp_path), certs("add", tmp_path, "worker")
    assert (again.exit_code, twice.exit_code) == (1, 1)
    assert "holds an authority already" in again.stderr
    assert "worker.pem is there already" in twice.stderr
    assert before == {file: file.read_bytes() for file in tmp_path.iterdir()}


def test_errors_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for arguments, message in [
        (("init", tmp_path / "file" / "below"), "cannot write to"),
        (("add", tmp_path / "nothing", "alice"), "holds no authority"),
        (("add", tmp_path, "../alice"), "is no name for a file"),
    ]:
        check_refused(certs(*arguments), message)


@pytest.fixture(scope="module")
def rig() -> PipelineRig:
    """A switch with a job of two ranks, where rank 0 has contributed to round 7 of slot 1."""
    made = PipelineRig("small", 2)
    made.program.trace_with(made.program.compiled.traced())
    made.send(0, made.contribution(1, 7, None, {0: bytes(made.geometry.block_bytes)}))
    return made


def told(rig: PipelineRig, rank: int, slot: int, number: int, **options: Any) -> list[str]:
    traces: list[PacketTrace] = []
    payload = rig.contribution(slot, number, None, {0: bytes(rig.geometry.block_bytes)}, **options)
    rig.program.process(rank_port(rank), rig.frame(rank, payload), traces.append)
    return list(trace_view.lines(msgspec.to_builtins(traces[0])))


def test_it_tells_why_a_contribution_was_dropped(rig: PipelineRig) -> None:
    stale = told(rig, 1, 1, 3)
    assert stale[0].endswith(
        f"port 2: CONTRIBUTE of job {JOB}, epoch 9, slot 1, round 3, columns 0b1, seen 0b0, level 0, "
        "next blocks none none none none"
    )
    assert stale[1:] == [
        "    admitted",
        "    slot: round 7 of epoch 9",
        "    dropped: STALE: the slot holds round 7, so it takes round 7 or 9, and the frame is of 3",
    ]
    assert told(rig, 0, 9, 7)[-1] == "    dropped: SLOT"
    assert told(rig, 0, 1, 7, epoch=8)[-1] == "    dropped: EPOCH"


def test_it_tells_which_children_a_round_waits_for_and_who_gets_the_result(rig: PipelineRig) -> None:
    first = told(rig, 0, 2, 7)
    assert "    children seen: 0b1 now" in first
    assert first[-1] == "    no answer: taken in, and other children are waited for"
    second = told(rig, 1, 2, 7)
    assert "    children seen: 0b11 now" in second
    results = f"RESULT of job {JOB}, epoch 9, slot 2, round 7, columns 0b1, seen 0b11, level 0"
    assert second[-2:] == [f"    to port {port}: {results}" for port in (1, 2)]
    assert not any(format(rig.children[0].secret, "x") in line for line in (*first, *second))


@pytest.mark.parametrize(("option", "said"), [("--slot=3", "a job"), ("--p4runtime=127.0.0.1:1", "start it")])
def test_errors_say_what_to_do(option: str, said: str) -> None:
    done = click.testing.CliRunner().invoke(main, ["switch", "trace", option])
    assert done.exit_code in (1, 2) and said in done.output


def cells(text: str, beginning: str) -> list[str]:
    (row,) = rows(text, beginning)
    return row


def a_look(at_s: float, times: int, *, job_id: int = 1, silent_s: float = 0.0) -> Look:
    members = (MemberInfo(0, silent_s),)
    info = JobInfo("train", job_id, 2, 0, 4, "ACTIVE", 3, members, "rank 1 left")
    counts = [Count(times * number, 1_000_000 * times * number) for number in (1, 2, 3, 4)]
    drops = (DropStats("stale", Count(10 * times)), DropStats("bad", Count()))
    return Look(at_s, JobList((info,), 16, 12), Stats((JobStats("train", job_id, *counts),), drops))


def text_of(before: Look, now: Look) -> str:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(screen(before, now))
    return captured.get()


def test_rates_are_the_differences_between_two_samples() -> None:
    text = text_of(a_look(10.0, 100), a_look(12.0, 120, silent_s=7.4))
    assert cells(text, "train") == [
        "train", "ACTIVE", "1 of 2", "30.0", "10.0", "30.0", "20.0", "40.0", "rank 0 7 s; rank 1 left",
    ]  # fmt: skip
    assert cells(text, "stale") == ["stale", "100.0", "1200"]
    assert "bad" not in text
    assert "12 of 16 slots free" in text


def test_a_new_job_of_the_same_name_has_no_rates_yet() -> None:
    text = text_of(a_look(10.0, 100), a_look(12.0, 1, job_id=2))
    assert cells(text, "train")[3:] == [*"-----", "new: rates follow; rank 1 left"]


def test_the_drops_of_a_switch_that_was_away_have_no_rate_yet() -> None:
    before, now = a_look(10.0, 100), a_look(12.0, 120)
    drops = (*now.stats.drops, DropStats("epoch", Count(900), "leaf2"))
    text = text_of(before, replace(now, stats=replace(now.stats, drops=drops)))
    assert cells(text, "stale") == ["stale", "", "100.0", "1200"]
    assert cells(text, "epoch") == ["epoch", "leaf2", "-", "900"]


def test_a_switch_without_connection_is_shown(running: Running) -> None:
    with JobClient(running.address) as client:
        client.create_job("train", 1)
    running.client.reachable = False
    text = shown(running, "top", "--once", "--every", "0.1")
    assert cells(text, "train")[3:] == [*"-----", "its counters could not be read"]
    assert "did not answer" in text


STUCK = WaitingSlot(slot=5, round=1234, missing=0b10, waited_s=7.5, in_flight=3)


def row(text: str, rank: int) -> list[str]:
    """The cells of a rank's row in the second table."""
    (found,) = rows(text.partition("Waiting, at the last heartbeat")[2], str(rank))
    return found


def test_missing_ranks_are_shown_with_their_waiting_time(running: Running) -> None:
    with JobClient(running.address) as client:
        tickets, _ = create_and_form(running, client, "train", 3)
        client.heartbeat(tickets[0].nonce, STUCK)
        client.heartbeat(tickets[1].nonce)
        client.heartbeat(tickets[2].nonce, WaitingSlot(0, 9, 0, 0.25, 1))
        text = shown(running, "job", "show", "train", "--slots")
        assert row(text, 0) == ["0", "3", "5", "1234", "7.5", "1"]
        assert row(text, 1)[-1] == "in no collective"
        assert row(text, 2)[-1] == "not known: no PENDING yet"
        assert "Waiting" not in shown(running, "job", "show", "train")
        assert client.get_job("train").members[0].slot_wait == STUCK
        members = json.loads(shown(running, "job", "show", "train", "--json"))["members"]
        assert members[0]["slot_wait"]["round"] == 1234
        client.heartbeat(tickets[0].nonce)
        assert client.get_job("train").members[0].slot_wait is None, "it went on"


def test_a_waiting_time_that_is_negative_or_not_finite_is_ignored(running: Running) -> None:
    with JobClient(running.address) as client:
        tickets, _ = create_and_form(running, client, "train", 1)
        for waited_s in (float("nan"), float("inf"), -1.0):
            client.heartbeat(tickets[0].nonce, WaitingSlot(0, 9, 0, waited_s, 1))
            assert client.get_job("train").members[0].slot_wait is None


def test_a_private_job_shows_its_rounds_to_its_token_alone(running: Running) -> None:
    with JobClient(running.address) as client:
        made = client.create_job("mine", 1, private=True)
    with JobClient(running.address, token=made.member_token) as member:
        tickets, _ = form(running, member, "mine", 1)
        member.heartbeat(tickets[0].nonce, STUCK)
    hidden = shown(running, "job", "show", "mine", "--slots")
    assert "hidden without a token" in hidden
    assert "1234" not in hidden + shown(running, "job", "show", "mine", "--json")
    assert row(shown(running, "job", "show", "mine", "--slots", "--token", made.owner_token), 0)[3] == "1234"
