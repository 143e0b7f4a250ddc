"""docs/switch/v1model.md and examples/l3_switch: the page's options are the command's, and the example runs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from p4reduce_runtime.p4runtime.schema import parse_p4info
from p4reduce_switch.bmv2 import cli
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S
from rigs.p4rt import Served, served

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "switch" / "v1model.md").read_text()
EXAMPLE = ROOT / "examples" / "l3_switch"
SHELL = ROOT / ".venv" / "shell" / "bin" / "python"
FINSY = ROOT / ".venv" / "interop" / "bin" / "python"
EVERY_ENTITY = ROOT / "softswitch" / "tests" / "interop" / "every_entity"
PROMPT = """
from p4runtime_sh.shell import *
setup(1, {address!r}, (0, 99), verbose=False)
from p4runtime_sh.shell import client, context
"""
"""The lines that define the names which the shell's prompt has."""
MININET_PYTHON = "/usr/bin/python3"

needs_shell = pytest.mark.skipif(not SHELL.exists(), reason="p4runtime-shell is not installed: run `make test`")


def has_mininet() -> bool:
    """Return whether the distribution's Python has Mininet, as Debian and Ubuntu install it."""
    try:
        return subprocess.run([MININET_PYTHON, "-c", "import mininet.net"], capture_output=True).returncode == 0
    except OSError:
        return False


def ones_complement_sum(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def packet(source: str, destination: str, ttl: int, *, damaged: bool = False) -> bytes:
    addresses = bytes(int(part) for part in f"{source}.{destination}".split("."))
    header = bytes.fromhex("45000020000100") + b"\0" + bytes((ttl, 17)) + b"\0\0" + addresses
    checksum = 0xFFFF ^ ones_complement_sum(header) ^ damaged
    return bytes(12) + b"\x08\0" + header[:10] + checksum.to_bytes(2, "big") + header[12:] + b"UDP datagram"


def test_the_page_has_each_option_and_no_other() -> None:
    options = {name for command in (cli.general, cli.target) for option in command.params for name in option.opts}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", PAGE.partition("## Options")[2].partition("\n## ")[0]))
    assert {option for option in options if option.startswith("--")} - named == {"--interface"}
    assert named - options == set()


def test_the_page_names_files_that_are_there() -> None:
    named = set(re.findall(r"`((?:examples|docs|softswitch)/[\w./-]+)`", PAGE))
    assert len(named) >= 3
    assert {name for name in named if not (ROOT / name).exists()} == set()


@needs_shell
@pytest.mark.skipif(not FINSY.exists(), reason="finsy is not installed: run `make test`")
@pytest.mark.processes
def test_finsy_and_p4runtime_shell_write_the_routes_and_take_the_commands_of_the_page() -> None:
    with served(Switch(0, None)) as switch:  # as `p4reduce-simple-switch --no-p4`
        check_routes(switch)
    with served() as switch:
        check_registers(switch)


def check_routes(switch: Served) -> None:
    """They are written, used and read back as on the page."""
    done = subprocess.run(
        [SHELL, EXAMPLE / "routes.py", switch.address], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^route .*", done.stdout, re.M) == [
        "route 10.0.1.0/24: 0 packets",
        "route 10.0.2.0/24: 0 packets",
    ]
    for frame in (
        packet("10.0.1.10", "10.0.2.10", 64),
        packet("10.0.1.10", "10.0.2.10", 1),
        packet("10.0.1.10", "10.0.3.10", 64),
        packet("10.0.1.10", "10.0.2.10", 64, damaged=True),
        packet("10.0.2.10", "10.0.1.10", 9),
    ):
        switch.switch.receive(1, frame)
    left = [switch.ports.sent.get_nowait() for _ in range(switch.ports.sent.qsize())]
    assert [(port, frame[:12].hex(), frame[22]) for port, frame in left] == [
        (2, "000000000210000000000201", 63),
        (1, "000000000110000000000101", 8),
    ]
    assert all(ones_complement_sum(frame[14:34]) == 0xFFFF for _, frame in left)
    (commands,) = re.findall(r"```python\n(te = .*?)```", PAGE, re.S)
    pipeline = f"{EXAMPLE}/l3_switch.p4info.txtpb,{EXAMPLE}/l3_switch.json"
    arguments = ["--device-id", "0", "--grpc-addr", switch.address, "--election-id", "0,2", "--config", pipeline]
    done = subprocess.run(
        [SHELL, "-m", "p4runtime_sh", *arguments],
        input=commands + "print('the' + ' end')\n",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert "the end" in done.stdout
    assert not re.search("Error|Exception|Traceback", done.stdout + done.stderr), done.stdout + done.stderr
    assert r"\\x0a\\x00\\x03\\x00" in done.stdout, "table_dump shows the entry"


def check_registers(switch: Served) -> None:
    """Registers are written and read as on the page."""
    finsy, shell = re.findall(r"```python\n(.*?)```", PAGE.partition("## Registers")[2].partition("\n## ")[0], re.S)
    config = tuple(str(EVERY_ENTITY.with_suffix(ending)) for ending in (".p4info.txtpb", ".json"))
    switch.server.set_pipeline(parse_p4info(Path(config[0]).read_text()), Path(config[1]).read_bytes())
    head = f"import asyncio, finsy\nfrom pathlib import Path\naddress = {switch.address!r}\n"
    head += f"p4info, p4blob = map(Path, {config})\nasync def main():\n"
    said = ""
    for python, script in (
        (FINSY, head + textwrap.indent(finsy, "    ") + "asyncio.run(main())\n"),
        (SHELL, PROMPT.format(address=switch.address) + shell + "teardown()\n"),
    ):
        command = [python, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        said += done.stdout
    cells = switch.switch.program
    assert cells is not None and cells.registers["MainIngress.memory"].read(2) == 8
    assert "finsy: 7" in said and r"shell: b'\x08'" in said


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
def test_the_compiled_program_is_current() -> None:
    spec = importlib.util.spec_from_file_location(
        "example_build", ROOT / "softswitch" / "tests" / "conformance" / "programs" / "build.py"
    )
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    program, p4info = build.compile_p4(EXAMPLE / "l3_switch.p4")
    assert (EXAMPLE / "l3_switch.json").read_text() == program
    assert (EXAMPLE / "l3_switch.p4info.txtpb").read_text() == p4info


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: network namespaces and interfaces")
@needs_shell
@pytest.mark.skipif(not has_mininet(), reason="Mininet is not installed")
@pytest.mark.skipif(shutil.which("ping") is None, reason="needs the command ping")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs the command unshare")
@pytest.mark.parametrize("name", ["embedded", "bmv2"])
def test_hosts_reach_each_other_in_mininet(name: str) -> None:
    """They are in a network namespace of their own, where no other switch has the address."""
    switch = "simple_switch_grpc" if name == "bmv2" else f"{sys.executable} -m p4reduce_switch.bmv2"
    if name == "bmv2" and shutil.which(switch) is None:
        pytest.skip("simple_switch_grpc is not on PATH")
    script = f'ip link set lo up; exec {MININET_PYTHON} {EXAMPLE}/topology.py "$0" {SHELL} "ping -c 3 -i 0.3 10.0.2.10"'
    command = ["unshare", "-n", "sh", "-c", script, switch]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert " 3 received, 0% packet loss" in done.stdout, done.stdout + done.stderr
    assert "ttl=63" in done.stdout
