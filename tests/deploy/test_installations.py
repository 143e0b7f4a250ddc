"""The playbook and the Containerfile of examples/deploy, with a wheel of this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from p4reduce_contracts.cli import main
from rigs.limits import LIMIT_S

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples/deploy"
BASE = os.environ.get("P4REDUCE_TEST_IMAGE", "")
pytestmark = [pytest.mark.deploy, pytest.mark.slow]


def _run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("ansible-playbook") is None, reason="not installed: apt install ansible-core")
@pytest.mark.skipif(os.geteuid() != 0, reason="the playbook becomes root")
@pytest.mark.parametrize("with_tls", [False, True])
def test_the_playbook_would_install_a_server_and_a_worker(with_tls: bool, tmp_path: Path) -> None:
    """`--check` changes nothing: pip and the services do not run. Nothing before the certificates depends on TLS."""
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    (tmp_path / "a.whl").touch()
    (tmp_path / "inventory.ini").write_text(
        "[server]\n127.0.0.1 ansible_connection=local\n[workers]\nhere ansible_connection=local\n"
    )
    given = ["-e", "wheel=a.whl"]
    if with_tls:
        main(["certs", "init", str(tmp_path / "tls")], standalone_mode=False)
        given += ["-e", f"tls={tmp_path / 'tls'}", "-e", "user=root", "--start-at-task", "Certificates"]
    said = _run("ansible-playbook", "--check", "--diff", "-i", "inventory.ini", *given, "ansible.yml", folder=tmp_path)
    assert said.count("unreachable=0    failed=0") == 2
    assert "PRIVATE KEY" not in said
    added = {line[1:].strip() for line in said.splitlines() if line.startswith("+")}
    assert "export PATH=/opt/p4reduce/bin:$PATH P4REDUCE_CONTROLLER=127.0.0.1:9600" in added
    assert ('key = "/etc/p4reduce/controller.key"' in added) == with_tls
    assert ("insecure = true" in added) == ("export P4REDUCE_INSECURE=1" in added) == (not with_tls)


@pytest.mark.skipif(shutil.which("podman") is None, reason="not installed: apt install podman")
@pytest.mark.skipif(
    not BASE, reason="P4REDUCE_TEST_IMAGE names no image with Python and pip that podman has or can pull"
)
def test_the_image_runs_as_an_ordinary_user(tmp_path: Path) -> None:
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT), folder=ROOT)
    image = "p4reduce-test"
    file = str(FILES / "Containerfile")
    _run("podman", "build", "--build-arg", f"BASE={BASE}", "-t", image, "-f", file, str(tmp_path), folder=ROOT)
    assert "p4reduce, version" in _run("podman", "run", "--rm", "--network", "none", image, "--version", folder=ROOT)
    identity = _run("podman", "run", "--rm", "--network", "none", "--entrypoint", "id", image, "-u", folder=ROOT)
    assert identity == "1000\n"
