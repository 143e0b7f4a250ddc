"""How many frames a second BMv2 sums: a block as one wide field against a register a word, in one run.

    sudo .venv/bin/python -m p4reduce_lab.bench.bmv2_rate [--repeats 3] [--out FILE.json]

Needs root, p4c-bm2-ss and simple_switch_grpc. Four workers on four hosts of a testbed (network namespaces, veth) do
dense all-reduces with a window of 16 slots; workers and switch share this machine's cores. The two programs and the
embedded switch take turns, so that a noisy machine is noisy for all.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from p4reduce_lab.processes import P4REDUCE, Children, ProcessError, terminable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WORKERS = 4
TESTBED_S = 600.0


def compile_per_word(folder: Path) -> Path:
    """Compile the default geometry with a field and a register a word; return its pipeline folder."""
    shutil.copytree(ROOT / "p4src", folder / "p4src")
    shutil.copy(HERE / "column_sum_per_word.p4", folder / "p4src/v1model/column_sum.p4")
    block = folder / "p4src/v1model/block.p4"
    text, one_field = block.read_text(), "    words_t words;"
    assert text.count(one_field) == 1
    block.write_text(text.replace(one_field, " ".join(f"bit<32> word_{word};" for word in range(32))))
    spec = importlib.util.spec_from_file_location("per_word_build", folder / "p4src/build.py")
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    build.compile_geometry("default", folder / "per_word")
    return folder / "per_word"


def measure(children: Children, target: str, pipeline: str, seconds: float) -> dict[str, float]:
    """Return the frames a second into the switch over all workers: first transmissions, and repeated ones.

    Raises ProcessError if the testbed or a worker fails.
    """
    worker = f"{sys.executable} -P -m p4reduce_lab.bench.all_reduce_rate --seconds {seconds}"
    options = ["--network", "netns", "--target", target, "--pipeline", pipeline, "--out", str(children.logs / "out")]
    command = [*P4REDUCE, "testbed", "run", *options, "--timeout", "300", "--exec", worker]
    testbed = children.start(f"testbed {target}", command)
    testbed.wait(TESTBED_S)
    children.forget(testbed)
    if testbed.status != 0:
        raise testbed.failure(f"({pipeline}) failed with status {testbed.status}")
    lines = testbed.log.read_text(encoding="utf-8").splitlines()
    rates = [json.loads(line[line.index("{") :]) for line in lines if '"frames_up"' in line]
    if len(rates) != WORKERS:
        raise testbed.failure(f"has heard of {len(rates)} workers, not {WORKERS}")
    return {
        "frames_per_s": sum(rate["frames_up"] / rate["seconds"] for rate in rates),
        "repeated_per_s": sum(rate["repeated"] / rate["seconds"] for rate in rates),
    }


def main() -> None:
    """Measure in turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, terminable(), Children(Path(scratch)) as children:
        per_word = str(compile_per_word(Path(scratch)))
        cases = {
            "BMv2, wide field": ("bmv2", "default"),
            "BMv2, register a word": ("bmv2", per_word),
            "embedded switch": ("embedded", "default"),
        }
        results: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
        for _ in range(args.repeats):
            for name, (target, pipeline) in cases.items():
                results[name].append(measure(children, target, pipeline, args.seconds))
                print(f"{name:24} {results[name][-1]['frames_per_s']:8.0f} frames/s", flush=True)
    base = statistics.median(result["frames_per_s"] for result in results["BMv2, wide field"])
    for name, found in results.items():
        middle = statistics.median(result["frames_per_s"] for result in found)
        print(f"{name:24} median {middle:8.0f} frames/s, {middle / base:5.2f} x the wide field on BMv2")
    if args.out:
        args.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    try:
        main()
    except ProcessError as error:
        raise SystemExit(error.message) from error
