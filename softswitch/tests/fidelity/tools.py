"""The programs that fidelity runs: p4c compiles, p4testgen makes up tests. Each is started with a deadline."""

from __future__ import annotations

import math
import os
import re
import resource
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NEEDED = {
    "p4c-bm2-ss": "p4c (https://github.com/p4lang/p4c)",
    "p4testgen": "p4c, configured with -DENABLE_TEST_TOOLS=ON",
    "simple_switch_grpc": "BMv2 (https://github.com/p4lang/behavioral-model)",
}
PORTS = "0:509"
"""510 is the CPU port and 511 means drop."""
COMPILE_S = 300.0
PATIENCE = 10
"""Ratio of the time that a command may take to its limit of processor time."""
NICE = 10
MEMORY = 6 << 30
"""Bytes of addresses that a command may use: p4testgen's search can grow without end."""
_V1MODEL = re.compile(r'^\s*#\s*include\s*[<"]([\w./]*/)?v1model\.p4[>"]', re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """A P4 program: where it comes from ("p4c" or "p4reduce"), its name there, the file, and macros (`-DNAME=1`)."""

    group: str
    name: str
    path: Path
    macros: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    """The end of a command: "" when it succeeded, else the reason why not, in one line."""

    problem: str


def missing() -> list[str]:
    """Return the programs that have to be installed, a line each."""
    return [f"{tool} is not on PATH: install {source}" for tool, source in NEEDED.items() if shutil.which(tool) is None]


def sources(samples: Path) -> list[Source]:
    """Every v1model program of a folder of p4c's, then this project's own."""
    if not samples.is_dir():
        raise FileNotFoundError(f"there is no folder {samples}: name p4c's testdata/p4_16_samples")
    theirs = [Source("p4c", path.stem, path) for path in sorted(samples.glob("*.p4")) if _is_v1model(path)]
    if not theirs:
        raise FileNotFoundError(f"{samples} holds no program for v1model: name p4c's testdata/p4_16_samples")
    programs = ROOT / "softswitch/tests/conformance/programs"
    ours = [Source("p4reduce", path.stem, path) for path in sorted(programs.glob("*.p4")) if path.stem != "construct"]
    return [*theirs, *ours, Source("p4reduce", "p4reduce", ROOT / "p4src/v1model/main.p4", macros())]


def macros() -> tuple[str, ...]:
    """The small geometry of the project's own program."""
    shape = tomllib.loads((ROOT / "p4src/artifacts/v1model/small/geometry.toml").read_text())
    return tuple(f"-D{name.upper()}={value}" for name, value in shape.items())


def _is_v1model(path: Path) -> bool:
    return _V1MODEL.search(path.read_text(errors="replace")) is not None


def compile_program(source: Source, json: Path, p4info: Path) -> Done:
    """BMv2 JSON and P4Info of a program."""
    done = command(
        ["p4c-bm2-ss", "--std", "p4-16", *source.macros, str(source.path), "-o", str(json)]
        + ["--p4runtime-files", str(p4info)],
        COMPILE_S,
        json.parent,
    )
    if not done.problem and not json.is_file():
        return Done("p4c wrote nothing: the file holds no whole program")
    return done


def generate(source: Source, folder: Path, tests: int, seed: int, limit_s: float) -> Done:
    """Up to `tests` tests of a program in `folder`, by their own names; those made before the deadline count.

    `limit_s` is processor time: so a busy machine has the same tests.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["p4testgen", "--target", "bmv2", "--arch", "v1model", "--std", "p4-16", "--test-backend", "PROTOBUF"]
    arguments += ["--max-tests", str(tests), "--seed", str(seed), "--port-ranges", PORTS, "--out-dir", str(folder)]
    return command([*arguments, *source.macros, str(source.path)], PATIENCE * limit_s, folder, math.ceil(limit_s))


def command(arguments: Sequence[str], limit_s: float, folder: Path, processor_s: int | None = None) -> Done:
    """Run a command at low priority and in MEMORY; it and what it started are killed at the deadline.

    `processor_s` is the processor time that it may use besides.
    """
    lower = max(0, NICE - os.nice(0))
    process = subprocess.Popen(
        ["nice", "-n", str(lower), *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
    if processor_s is not None:
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (processor_s, processor_s + 1))
    try:
        _, output = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Done(f"not ready within {limit_s:.0f} s")
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return Done(f"not ready within {processor_s} s of processor time")
    if process.returncode:
        return Done(_error(output) or f"ended with status {process.returncode}")
    return Done("")


def version(tool: str) -> str:
    """The first number with dots in what `tool --version` prints; "unknown" where there is none."""
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=COMPILE_S, check=False)
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found.group() if found else "unknown"


def _error(output: str) -> str:
    """The line of a compiler's messages with the error, without paths."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"\b(error|bug|unsupported|unimplemented)\b", line, re.IGNORECASE)]
    line = telling[0] if telling else lines[-1] if lines else ""
    return re.sub(r"(/[^\s:()]+)+/", "", line)[:200]
