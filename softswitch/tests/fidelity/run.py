"""Play p4testgen's tests on BMv2 and on the embedded switch: run.py --samples p4c/testdata/p4_16_samples

Needs p4testgen, p4c-bm2-ss and simple_switch_grpc on PATH. What was made stays in --out: a run that was interrupted
goes on where it was, and after a change to the embedded switch only that is played again. The counts go to docs/switch.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fidelity import results, tools  # noqa: E402
from fidelity.generated import BadTestError, GeneratedTest, corrected, read  # noqa: E402
from fidelity.playing import BMV2, EMBEDDED, Built, Outcome, Player, read_built  # noqa: E402
from fidelity.results import Record  # noqa: E402
from fidelity.tools import ROOT, Done, Source  # noqa: E402
from p4reduce_runtime.p4runtime.schema import parse_p4info  # noqa: E402

EMBEDDED_SOURCES = ("softswitch", "runtime/p4reduce_runtime/p4runtime")
"""The sources on which the embedded switch's answers depend."""
SWITCHES = (EMBEDDED,)
"""The switches that are compared with BMv2."""
PLAYED_BY = tuple(Path(__file__).with_name(name) for name in ("generated.py", "playing.py"))
"""The other sources on which a test's outcome depends."""
SAMPLES = "P4C_SAMPLES"
Tests = list[tuple[Path, GeneratedTest]]
Generate = Callable[[Source, Path, int, int, float], Done]


class Run:
    """Works through programs, one after the other, in `folder`."""

    def __init__(
        self, folder: Path, seeds: int, tests: int, limit_s: float, generate: Generate = tools.generate
    ) -> None:
        """`tests` of a program for each of `seeds`; p4testgen has `limit_s` for each."""
        self.folder = folder
        self.seeds, self.tests, self.limit_s = seeds, tests, limit_s
        self._generate = generate
        self._code = results.digest(path for name in EMBEDDED_SOURCES for path in (ROOT / name).rglob("*.py"))

    def record(self, source: Source) -> Record:
        """Return how a program's tests end; what is known from an earlier run is not done again."""
        folder = self.folder / source.group / source.name
        kept = folder / "record.json"
        record = results.load(source.name, source.group, kept)
        json, p4info = folder / "program.json", folder / "program.p4info.txtpb"
        folder.mkdir(parents=True, exist_ok=True)
        if not json.is_file():
            done = tools.compile_program(source, json, p4info)
            if done.problem:
                json.unlink(missing_ok=True)
                record.problem = f"p4c: {_kind(done.problem)}"
                results.save(record, kept)
                return record
        record.problem = self._generate_all(source, folder)
        built = read_built(json, p4info)
        tests, record.unreadable = self._read_all(folder, parse_p4info(built.p4info))
        for switch in (BMV2, *SWITCHES):
            self._play_all(switch, record, built, tests, json)
            results.save(record, kept)
        return record

    def _play_all(self, switch: str, record: Record, built: Built, tests: Mapping[str, Tests], json: Path) -> None:
        """Play the tests of each seed not yet played with this program on this switch, and discard others."""
        known = record.outcomes.get(switch, {})
        outcomes: dict[str, Outcome] = {}
        player: Player | None = None
        try:
            for seed, made in tests.items():
                names = {path: f"{seed}/{path.stem}" for path, _ in made}
                inputs = results.digest([json, *names, *PLAYED_BY])
                key = inputs if switch == BMV2 else f"{inputs} {self._code}"
                if record.keys.get(f"{switch} {seed}") == key and known.keys() >= set(names.values()):
                    outcomes |= {name: known[name] for name in names.values()}
                    continue
                player = player or Player(switch)
                outcomes |= {names[path]: player.play(built, test) for path, test in made}
                record.keys[f"{switch} {seed}"] = key
        finally:
            if player is not None:
                player.close()
        record.outcomes[switch] = outcomes

    def _generate_all(self, source: Source, folder: Path) -> str:
        """The tests for each seed that are not there yet; returns why the last one without any has none."""
        problem = ""
        for seed in range(1, self.seeds + 1):
            made, ended = folder / f"seed{seed}", folder / f"seed{seed}.txt"
            if not ended.exists():
                ended.write_text(self._generate(source, made, self.tests, seed, self.limit_s).problem)
            if not any(made.glob("*.txtpb")):
                problem = f"p4testgen: {_kind(ended.read_text()) or 'no tests'}"
        return problem

    def _read_all(self, folder: Path, p4info: Any) -> tuple[dict[str, Tests], int]:
        """The tests of each seed in order, and how many texts were none."""
        found: dict[str, Tests] = {}
        unreadable = 0
        for seed in range(1, self.seeds + 1):
            tests = found.setdefault(f"seed{seed}", [])
            for path in sorted((folder / f"seed{seed}").glob("*.txtpb"))[: self.tests]:
                try:
                    tests.append((path, corrected(read(path.read_text(errors="replace")), p4info)))
                except BadTestError:
                    unreadable += 1
        return found, unreadable


def _kind(problem: str) -> str:
    """A message without what belongs to one program: names in quotes and places."""
    text = re.sub(r"^\S+\(\d+\):\s*|\[--W\S+\]\s*", "", problem)
    return re.sub(r"\S*\.p4\S*|\"[^\"]*\"|'[^']*'", "…", text).strip()[:80]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status: 1 when BMv2 passes a test that the embedded switch fails."""
    parser = argparse.ArgumentParser(description="Generated tests on BMv2 and on the embedded switch.")
    parser.add_argument(
        "programs", nargs="*", help="names of programs (default: all; only then docs/switch is written)"
    )
    parser.add_argument("--samples", type=Path, default=os.environ.get(SAMPLES), help=f"p4c's programs (${SAMPLES})")
    parser.add_argument("--out", type=Path, default=ROOT / "out/fidelity", help="what is kept between runs")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs/switch", help="where the counts go")
    parser.add_argument("--seeds", type=int, default=3, help="how often tests are generated (default: 3)")
    parser.add_argument("--tests", type=int, default=10, help="tests a program and seed (default: 10)")
    parser.add_argument("--limit-s", type=float, default=60.0, help="processor seconds of p4testgen a program and seed")
    parser.add_argument("--minutes", type=float, help="begin no further program after so many minutes")
    options = parser.parse_args(arguments)
    missing = tools.missing()
    if options.samples is None:
        missing.append(f"p4c's programs are not named: --samples or ${SAMPLES}, its folder testdata/p4_16_samples")
    if missing:
        print("\n".join(missing), file=sys.stderr)
        return 2
    try:
        found = tools.sources(options.samples.resolve())
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    unknown = set(options.programs) - {source.name for source in found}
    if unknown:
        print(f"no such program: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    run = Run(options.out.resolve(), options.seeds, options.tests, options.limit_s)
    selected = [source for source in found if not options.programs or source.name in options.programs]
    records = _records(run, selected, None if options.minutes is None else time.monotonic() + 60 * options.minutes)
    about = {tool: tools.version(tool) for tool in ("p4c-bm2-ss", "simple_switch_grpc")}
    about |= {
        "seeds": ", ".join(str(seed) for seed in range(1, options.seeds + 1)),
        "tests a program and seed at most": str(options.tests),
    }
    if len(records) < len(selected):
        about["programs left for another run"] = str(len(selected) - len(records))
    page = results.as_markdown(records, about)
    print(page)
    if not options.programs:
        (options.docs / "fidelity.json").write_text(results.as_json(records, about))
        (options.docs / "fidelity.md").write_text(page)
    return int(any(record.behind(switch) for record in records for switch in SWITCHES))


def _records(run: Run, selected: Sequence[Source], deadline: float | None) -> list[Record]:
    """The programs' records, each printed when it is complete."""
    records: list[Record] = []
    for number, source in enumerate(selected, 1):
        if deadline is not None and time.monotonic() > deadline:
            print(
                f"the time is over: {len(selected) - len(records)} programs are left for the next run", file=sys.stderr
            )
            break
        record = run.record(source)
        records.append(record)
        counts = {switch: dict(record.counts(switch)) for switch in record.outcomes}
        print(
            f"{number}/{len(selected)} {source.name}: {record.tests} tests {record.problem} {counts}", file=sys.stderr
        )
        for switch in SWITCHES:
            for line in record.behind(switch):
                print(f"  {switch} {line[:300]}", file=sys.stderr)
    return records


if __name__ == "__main__":
    sys.exit(main())
