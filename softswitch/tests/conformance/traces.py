"""BMv2's log of each packet, and the embedded switch's: python traces.py records BMv2's (needs simple_switch_grpc).

python traces.py            record every case of a small program
python traces.py --check    compare BMv2 with the recording; write nothing
python traces.py --samples  record and compare p4c's samples, or those named; needs p4c-bm2-ss and P4C_SAMPLES too

A log is compared in the form of `normal`: by packet and copy, the lines of `KINDS`. Of p4c's samples, which are not
checked in, digests are recorded.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance import bmv2, stf  # noqa: E402
from conformance.case import HERE, Answers, Case  # noqa: E402
from conformance.corpus import small_programs  # noqa: E402
from conformance.embedded import EmbeddedTarget  # noqa: E402
from conformance.replay import replay  # noqa: E402
from fidelity import tools  # noqa: E402
from p4reduce_runtime.p4runtime.schema import Schema  # noqa: E402
from p4reduce_switch.program import PacketTrace  # noqa: E402
from p4reduce_switch.switch import Watch  # noqa: E402
from p4reduce_switch.trace.bmv2 import log_lines  # noqa: E402

FILE = HERE / "traces.jsonl.gz"
SAMPLES = HERE / "traces_samples.jsonl.gz"
KINDS = (
    *("Processing packet", "Parser '", "Parser state", "Extracting header '", "Extracting variable", "Exception"),
    *(
        "Bytes parsed",
        "Verified checksum",
        "Checksum",
        "Pipeline",
        "Condition",
        "Applying table",
        "Looking up",
        "Table",
    ),
    *("Dumping entry", "Action", "Primitive", "Read register", "Wrote register", "Updated counter", "Updated meter"),
    *("Executing meter", "Egress port", "Dropping", "Multicast", "Replicating", "Cloning", "Resubmitting"),
    *("Recirculating", "Deparser", "Deparsing", "Updating checksum", "Transmitting"),
)
"""The first words of the lines that `p4reduce-simple-switch` writes as BMv2 does."""
SAMPLES_OTHERWISE = {"table-entries-lpm-bmv2": "BMv2 shows a const entry's bits beyond its prefix, here they are 0"}
"""Samples of p4c's whose logs differ, and why."""
Log = dict[str, list[list[str]]]
"""The lines of each packet's copies, by packet."""

_RECORD = re.compile(r"\n(?=\[\d\d:\d\d:\d\d\.\d+\] \[bmv2\])")
_LINE = re.compile(r"(?:.*\[thread \d+\] )?\[(\d+\.\d+)\] \[cxt 0\] (.*)", re.DOTALL)


def normal(records: Iterable[str]) -> Log:
    """Return the lines of a log that are compared, each without time and thread.

    Left out are: the numbers of entries, which BMv2 gives away otherwise once entries are deleted; their priorities,
    which count the other way round; what an entry of a table with an action profile refers to; computed checksums; what
    a parser's statements do; and the order of a packet's replicas, which PI's hash table determines.
    """
    copies: dict[str, list[str]] = {}
    for record in records:
        match = _LINE.match(record)
        if match is None or not match[2].startswith(KINDS) or " computed " in match[2]:
            continue
        lines = [line.rstrip() for line in match[2].strip().splitlines()]
        lines = [re.sub(r"^(Dumping entry|.*hit with handle) \d+$", r"\1", line) for line in lines]
        lines = [line for line in lines if not re.match(r"Priority: |Index: |Group members:|  mbr ", line)]
        if lines[0] == "Dumping entry":
            lines = [line for line in lines if not line.startswith("Action entry: ")]
        copies.setdefault(match[1], []).append("\n".join(lines))
    found: Log = {}
    for copy in sorted(copies):
        found.setdefault(copy.partition(".")[0], []).append(_ordered(copies[copy]))
    return {packet: sorted(logs) for packet, logs in found.items()}


def _ordered(lines: list[str]) -> list[str]:
    """Return the lines without the statements of a parser, and with those about replicas in order."""
    kept, parsing = [], False
    for line in lines:
        parsing = line == "Parser 'parser': start" or (parsing and line != "Parser 'parser': end")
        if not (parsing and line.startswith(("Action", "Primitive"))):
            kept.append(line)
    replicas = iter(sorted(line for line in kept if line.startswith("Replicating")))
    return [next(replicas) if line.startswith("Replicating") else line for line in kept]


def of_embedded_switch(case: Case) -> tuple[Log, Answers]:
    """Return the log of the embedded switch, and what it answered while it wrote that."""
    records: list[str] = []

    def take(trace: PacketTrace) -> None:
        records.extend(line for _, line in log_lines(trace))

    with EmbeddedTarget() as target:
        target.switch.watch(Watch(take))
        answers = replay(case, target)
    return normal(records), answers


def of_bmv2(case: Case) -> Log:
    """Return BMv2's log."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.txt")
        with bmv2.Bmv2Target(log) as target:
            replay(case, target)
        return normal(_RECORD.split(log.read_text(encoding="utf-8", errors="replace")))


def recorded() -> dict[str, tuple[dict[str, str], Log]]:
    """Return of each recorded case the digests of its program, and BMv2's log."""
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return {row["case"]: (row["digests"], row["log"]) for row in rows}


def recorded_samples() -> dict[str, tuple[str, str]]:
    """Return of each recorded sample of p4c's the digests of its case and of BMv2's log."""
    with gzip.open(SAMPLES, "rt", encoding="utf-8") as lines:
        return {name: (case, log) for name, case, log in map(json.loads, lines)}


def log_digest(log: Log) -> str:
    return hashlib.sha256(json.dumps(log, sort_keys=True).encode()).hexdigest()


def sample(source: tools.Source, folder: Path) -> tuple[Case, str]:
    """Compile a sample in a folder; return its case, and SHA-256 of JSON and .stf file. ValueError if refused."""
    json_file, p4info = folder / "it.json", folder / "it.p4info.txtpb"
    if (done := tools.compile_program(source, json_file, p4info)).problem:
        raise ValueError(done.problem)
    json_file.write_text(json_file.read_text().replace(f"{source.path.parent}/", ""))
    text = source.path.with_suffix(".stf").read_text()
    case = Case(source.name, json_file, p4info, tuple(stf.steps(text, Schema.from_p4info(p4info.read_text()))))
    return case, hashlib.sha256(json_file.read_bytes() + text.encode()).hexdigest()


def compare_sample(source: tools.Source, recordings: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """Put BMv2's log of a sample among the recordings; return how the logs compare, and the first lines that differ."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            case, digest = sample(source, Path(folder))
            theirs = of_bmv2(case)
            ours, _ = of_embedded_switch(case)
        except (ValueError, bmv2.Bmv2Error, grpc.RpcError) as error:
            return "not compared", str(error)
    recordings[source.name] = digest, log_digest(theirs)
    if ours == theirs:
        return "equal", ""
    if source.name in SAMPLES_OTHERWISE:
        return "excepted", SAMPLES_OTHERWISE[source.name]
    here, there = ([line for copies in log.values() for lines in copies for line in lines] for log in (ours, theirs))
    at = next((n for n, pair in enumerate(zip(here, there, strict=False)) if pair[0] != pair[1]), -1)
    return "different", f"here {here[at : at + 2]}, on BMv2 {there[at : at + 2]}"


@functools.cache
def samples() -> dict[str, tools.Source]:
    """Return p4c's samples that have an .stf file, by name."""
    known = tools.sources(Path(os.environ["P4C_SAMPLES"]))
    return {source.name: source for source in known if source.path.with_suffix(".stf").exists()}


def compare_samples(names: list[str]) -> int:
    """Record p4c's samples, all or these, and print how they compare; return how many have a log that differs."""
    found: Counter[str] = Counter()
    recordings = recorded_samples() if names else {}
    for name, source in samples().items():
        if not names or name in names:
            outcome, reason = compare_sample(source, recordings)
            found[outcome] += 1
            if reason:
                print(f"{name}: {outcome}: {reason}", flush=True)
    rows = [json.dumps([name, *recordings[name]]) for name in sorted(recordings)]
    SAMPLES.write_bytes(gzip.compress("\n".join(rows).encode(), mtime=0))
    print(", ".join(f"{number} {outcome}" for outcome, number in found.items()))
    return found["different"]


def main(arguments: list[str]) -> int:
    """Run the command line; return its exit status."""
    if "--samples" in arguments:
        lacks = [name for name in ("p4c-bm2-ss", "simple_switch_grpc") if shutil.which(name) is None]
        if lacks or "P4C_SAMPLES" not in os.environ:
            print(f"not compared: not on PATH: {lacks}; P4C_SAMPLES: {os.environ.get('P4C_SAMPLES', 'not set')}")
            return 2
        return min(1, compare_samples([name for name in arguments if name != "--samples"]))
    fresh = {name: (case.digests(), of_bmv2(case)) for name, case in small_programs().items()}
    if "--check" in arguments:
        known = recorded()
        differing = [name for name in fresh if known.get(name) != fresh[name]]
        print(f"{len(fresh)} cases, of which BMv2 logs otherwise than recorded: {', '.join(differing) or 'none'}")
        return 1 if differing else 0
    rows = [json.dumps({"case": name, "digests": digests, "log": log}) for name, (digests, log) in fresh.items()]
    FILE.write_bytes(gzip.compress("\n".join(rows).encode(), mtime=0))
    print(f"{len(fresh)} cases, {sum(len(log) for _, log in fresh.values())} packets")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
