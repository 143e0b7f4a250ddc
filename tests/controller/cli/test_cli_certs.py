"""`p4reduce certs`."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from p4reduce_contracts.cli import main
from p4reduce_runtime.security import Security


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
        result = certs(*arguments)
        assert result.exit_code == 1
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
