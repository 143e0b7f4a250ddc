"""Coverage-guided fuzzing of the decoders with atheris: inputs that reach new code of the project breed others.

python tests/fuzz/coverage_guided.py                        every target for a minute
python tests/fuzz/coverage_guided.py lease --seconds 600    one of them for ten

The corpus begins with the project's own messages. An input that brings anything out but a documented error, takes
more than 100 s or 4 GiB, is shown with its traceback, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

from fuzz.targets import TARGETS
from rigs.fork_server import ForkServer, fork_server

CHILD = Path(__file__).resolve().parents[1] / "rigs" / "under_atheris.py"
STARTING_S = 120.0
SLOWEST_S = 100
MOST_MIB = 4096
_DONE = re.compile(r"Done (\d+) (?:runs )?in|stat::number_of_executed_units: (\d+)")


@dataclass(frozen=True)
class Fuzzed:
    """The result of a target: how many inputs it ran, whether all was well, and atheris's own words."""

    runs: int
    ok: bool
    log: str


@contextmanager
def instrumented() -> Iterator[ForkServer]:
    """Start what forks processes whose decoders atheris has instrumented, which takes seconds."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, fork_server(Path(folder), [CHILD.stem]) as server:
        yield server


def fuzz(server: ForkServer, name: str, *, runs: int = -1, seconds: float = 60, seed: int = 1) -> Fuzzed:
    """Run a target of `instrumented` until `runs` inputs or `seconds` are over, whichever is first."""
    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for index, data in enumerate(target.seeds()):
            (corpus / f"seed{index}").write_bytes(data)
        options = [f"-runs={runs}", f"-max_total_time={seconds:.0f}", f"-seed={seed}", f"-timeout={SLOWEST_S}"]
        options += [
            f"-rss_limit_mb={MOST_MIB}",
            "-max_len=65536",
            "-print_final_stats=1",
            f"-artifact_prefix={folder}/",
        ]
        if target.words:
            words = Path(folder) / "words"
            words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words if len(word) <= 64))
            options.append(f"-dict={words}")
        output = Path(folder) / "log"
        with server.start(output, str(CHILD), name, *options, str(corpus), environment=os.environ) as process:
            status = process.wait(STARTING_S + seconds + 2 * SLOWEST_S)
        log = output.read_text(errors="replace")
        counts = [int(first or second) for first, second in _DONE.findall(log)]
        found = [path.read_bytes().hex() for path in Path(folder).iterdir() if re.match("crash|timeout|oom", path.name)]
    return Fuzzed(max(counts, default=0), status == 0, "\n".join([log, *found]))


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the decoders, guided by the code that their inputs reach.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    good = True
    with instrumented() as server:
        for name in options.targets or TARGETS:
            done = fuzz(server, name, seconds=options.seconds, seed=options.seed)
            print(f"{name:16} {done.runs:>10} inputs  {'ok' if done.ok else 'FAILED'}", flush=True)
            if not done.ok:
                print(done.log)
            good &= done.ok
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
