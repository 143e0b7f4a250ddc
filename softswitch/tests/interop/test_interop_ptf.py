"""A PTF suite passes on p4reduce-simple-switch and on BMv2, started by the same line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rigs.limits import LIMIT_S

ROOT = Path(__file__).parents[3]
SUITE = Path(__file__).with_name("ptf_l3_switch")
PTF = ROOT / ".venv" / "shell" / "bin" / "ptf"
SCRIPT = """
set -e
ip link set lo up
for port in 1 2; do
    ip link add sw$port type veth peer name host$port
    for end in sw$port host$port; do
        sysctl -qw net.ipv6.conf.$end.disable_ipv6=1 2>/dev/null || true
        ip link set $end up
    done
done
$SWITCH --no-p4 -i 1@sw1 -i 2@sw2 -- --grpc-server-addr 127.0.0.1:9559 &
switch=$!
trap "kill $switch" EXIT
until "$PYTHON" -c "import socket; socket.create_connection(('127.0.0.1', 9559))" 2>/dev/null; do
    kill -0 $switch
    sleep 0.2
done
sleep 0.5
"$PYTHON" "$PTF" -i 1@host1 -i 2@host2 --test-dir "$SUITE" --log-dir "$FOLDER/log" --log-file "$FOLDER/ptf.log" \
    --test-params="grpcaddr='127.0.0.1:9559';example='$EXAMPLE'" 2>&1
"""
"""The script that runs in a network namespace of its own."""


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: network namespaces and interfaces")
@pytest.mark.skipif(not PTF.exists(), reason="PTF is not installed: run `make test`")
@pytest.mark.skipif(shutil.which("unshare") is None or shutil.which("ip") is None, reason="needs unshare and ip")
@pytest.mark.parametrize("name", ["embedded", "bmv2"])
def test_a_ptf_suite_passes(name: str, tmp_path: Path) -> None:
    switch = "simple_switch_grpc" if name == "bmv2" else f"{sys.executable} -m p4reduce_switch.bmv2"
    if name == "bmv2" and shutil.which(switch) is None:
        pytest.skip("simple_switch_grpc is not on PATH")
    variables = {
        "SWITCH": switch,
        "PYTHON": str(PTF.with_name("python")),
        "PTF": str(PTF),
        "SUITE": str(SUITE),
        "EXAMPLE": str(ROOT / "examples" / "l3_switch"),
        "FOLDER": str(tmp_path),
    }
    settings = [f"{variable}={value}" for variable, value in variables.items()]
    done = subprocess.run(
        ["unshare", "-n", "env", *settings, "sh", "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=tmp_path,
        check=False,
    )
    tests = len(re.findall(r"^class \w+\(RouterTest\)", (SUITE / "l3_switch.py").read_text(), re.M))
    assert f"Ran {tests} tests" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, done.stdout
