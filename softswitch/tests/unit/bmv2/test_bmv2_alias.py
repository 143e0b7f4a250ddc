"""`p4reduce switch alias`."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
from click.testing import CliRunner

from p4reduce_switch.cli import switch


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of commands, and the only one on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    command = tmp_path / "p4reduce-simple-switch"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    return tmp_path


def test_the_name_of_bmv2_leads_to_ours(scripts: Path) -> None:
    done = CliRunner().invoke(switch, ["alias"])
    assert done.exit_code == 0, done.output
    assert (scripts / "simple_switch_grpc").resolve() == scripts / "p4reduce-simple-switch"
    again = CliRunner().invoke(switch, ["alias"])
    assert again.exit_code == 1


def test_no_link_leads_to_nothing(scripts: Path) -> None:
    (scripts / "p4reduce-simple-switch").unlink()
    done = CliRunner().invoke(switch, ["alias"])
    assert done.exit_code == 1
    assert "there is no" in done.output
    assert list(scripts.iterdir()) == []


def test_an_installed_bmv2_is_left_alone(scripts: Path) -> None:
    bmv2 = scripts / "simple_switch_grpc"
    bmv2.write_text("#!/bin/sh\n")
    bmv2.chmod(0o755)
    done = CliRunner().invoke(switch, ["alias"])
    assert done.exit_code == 1
    assert str(bmv2) in done.output
    assert not bmv2.is_symlink()
