"""The sdist and the wheel that is built from it, as an installed user has them: outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from rigs.limits import LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, PACKAGES = PYPROJECT["project"], PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def run(*command: str | Path, cwd: Path) -> str:
    """Return what a command prints; it fails the test if it ends with another status than 0."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment with the wheel; its dependencies are this environment's."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (sdist,) = folder.glob("p4reduce-*.tar.gz")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, sdist, cwd=folder)
    (wheel,) = folder.glob("p4reduce-*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    programs = folder / "venv/bin"
    (site,) = (folder / "venv/lib").glob("python*/site-packages")
    run(*pip, "--python", programs / "python", "install", "--no-deps", "--no-index", wheel, cwd=folder)
    # .pth files in that folder, such as the one of the editable installation, are not read
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return programs


@pytest.mark.slow
@pytest.mark.processes
def test_an_installed_wheel_has_every_module_and_runs_every_command(installed: Path, tmp_path: Path) -> None:
    (sdist,) = installed.parents[1].glob("p4reduce-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "p4src/v1model/main.p4"} <= names
    assert not {name for name in names if name.split("/")[0] in (".venv", "out")}
    (wheel,) = installed.parents[1].glob("p4reduce-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for package in PACKAGES:
        folder = (ROOT / package).parent
        modules = {str(path.relative_to(folder)) for path in (ROOT / package).rglob("*.py")}
        assert modules and modules <= names
    where = "from p4reduce_runtime import pipeline_folders; from p4reduce_lab.training import find_script"
    shown = f"{where}; print(find_script(), pipeline_folders.find('default'))"
    found = run(installed / "python", "-c", shown, cwd=tmp_path)
    script, pipeline = map(Path, found.split())
    assert script.is_file() and pipeline.is_dir()
    assert script.is_relative_to(installed.parent) and pipeline.is_relative_to(installed.parent)
    program = installed / "p4reduce"
    where = run(installed / "python", "-c", "import p4reduce; print(p4reduce.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    assert PROJECT["version"] in run(program, "--version", cwd=tmp_path)
    listed = run(program, "--help", cwd=tmp_path)
    assert "cannot be loaded" not in listed
    for command in metadata.entry_points(group="p4reduce.commands").names:
        assert command in listed
        run(program, command, "--help", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.processes
def test_an_installed_user_writes_a_compressor(installed: Path, tmp_path: Path) -> None:
    """The document's file and test, with nothing of the checkout."""
    pytest.importorskip("torch")
    from worker.compressors.test_compressor_registry import HOWTO, blocks

    example, test = blocks(HOWTO, "python")
    (tmp_path / "top_signs.py").write_text(example, encoding="utf-8")
    (tmp_path / "test_top_signs.py").write_text(test, encoding="utf-8")
    code = (
        "import p4reduce; assert p4reduce.compressors.AdaComp.name == 'adacomp';"
        "import p4reduce_contracts, top_signs, test_top_signs; test_top_signs.test_nothing_is_lost();"
        "print(p4reduce.__file__, p4reduce_contracts.__file__)"
    )
    files = run(installed / "python", "-c", code, cwd=tmp_path)
    assert all(Path(file).is_relative_to(installed.parent) for file in files.split())
