"""The root command and the commands that packages bring."""

from __future__ import annotations

from importlib import metadata

import pytest
from click.testing import CliRunner, Result

from p4reduce_contracts import cli


def p4reduce(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, arguments, catch_exceptions=False)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands whose packages cannot be loaded, beside those that there are."""
    there = metadata.entry_points

    def entry_points(*, group: str, **wanted: str) -> metadata.EntryPoints:
        entries = [*there(group=group)]
        entries += [
            metadata.EntryPoint("gone", "p4reduce_gone.cli:gone", group),
            metadata.EntryPoint("renamed", "p4reduce_contracts.cli:renamed", group),
        ]
        return metadata.EntryPoints(entries).select(**wanted)

    monkeypatch.setattr(cli.metadata, "entry_points", entry_points)


def test_help_lists_the_commands_of_all_packages_and_what_they_do() -> None:
    lines = p4reduce("--help").stdout.partition("Commands:\n")[2].splitlines()
    listed = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert listed["job"] == "Create, show and remove jobs."
    assert listed["controller"] == "Run the controller, or list its switches."
    assert set(listed) == metadata.entry_points(group="p4reduce.commands").names


def test_a_command_that_cannot_be_loaded_does_not_break_the_others(broken: None) -> None:
    helped = p4reduce("--help")
    assert helped.exit_code == 0
    assert "Create, show and remove jobs." in helped.stdout
    assert "cannot be loaded: No module named 'p4reduce_gone'" in " ".join(helped.stdout.split())
    assert p4reduce("job", "--help").exit_code == 0


@pytest.mark.parametrize(
    ("name", "why"), [("gone", "No module named 'p4reduce_gone'"), ("renamed", "has no attribute 'renamed'")]
)
@pytest.mark.parametrize("arguments", [[], ["run", "--listen", "x"]], ids=["alone", "with arguments"])
def test_calling_a_command_that_cannot_be_loaded_says_why(
    broken: None, name: str, why: str, arguments: list[str]
) -> None:
    called = p4reduce(name, *arguments)
    assert (called.exit_code, called.stdout) == (1, "")
    assert called.stderr.startswith(f"Error: `p4reduce {name}` cannot be loaded: ") and why in called.stderr
    assert called.stderr.count("\n") == 1


def test_an_unknown_command_is_wrong_usage() -> None:
    called = p4reduce("jbo")
    assert called.exit_code == 2
    assert "No such command 'jbo'" in called.stderr
