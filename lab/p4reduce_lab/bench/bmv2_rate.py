"""How many frames a second BMv2 sums: a block as one wide field against a register a word, in one run.

    sudo .venv/bin/python benchmarks/bmv2_rate.py [--repeats 3] [--out FILE.json]

Needs root, p4c-bm2-ss and simple_switch_grpc. Four workers on four hosts of a testbed (network namespaces, veth) do
dense all-reduces with a window of 16 slots; workers and switch share this machine's cores. The two programs and the
embedded switch take turns, so that a noisy machine is noisy for all.
"""

import argparse
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WORKERS = 4


def compile_per_word(folder: Path) -> Path:
    """The default geometry with a field and a register a word; returns its pipeline folder."""
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


def measure(target: str, pipeline: str, seconds: float, out: Path) -> dict[str, float]:
    """Frames a second into the switch, first transmissions and repeated ones, over all workers."""
    rank_command = f"{sys.executable} {HERE}/all_reduce_rate.py --seconds {seconds}"
    command = [str(Path(sys.executable).with_name("p4reduce")), "testbed", "run", "--network", "netns"]
    command += ["--target", target, "--pipeline", pipeline, "--out", str(out), "--timeout", "300"]
    command += ["--exec", rank_command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{target} {pipeline} failed: {done.stdout}\n{done.stderr}")
    reports = [json.loads(line[line.index("{") :]) for line in done.stdout.splitlines() if '"frames_up"' in line]
    if len(reports) != WORKERS:
        raise SystemExit(f"{len(reports)} workers reported, not {WORKERS}: {done.stdout}")
    return {
        "frames_per_s": sum(one["frames_up"] / one["seconds"] for one in reports),
        "repeated_per_s": sum(one["repeated"] / one["seconds"] for one in reports),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        per_word = str(compile_per_word(Path(scratch)))
        cases = {
            "BMv2, wide field": ("bmv2", "default"),
            "BMv2, register a word": ("bmv2", per_word),
            "embedded switch": ("embedded", "default"),
        }
        results: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
        for _ in range(args.repeats):
            for name, (target, pipeline) in cases.items():
                results[name].append(measure(target, pipeline, args.seconds, Path(scratch) / "out"))
                print(f"{name:24} {results[name][-1]['frames_per_s']:8.0f} frames/s", flush=True)
    base = statistics.median(one["frames_per_s"] for one in results["BMv2, wide field"])
    for name, found in results.items():
        middle = statistics.median(one["frames_per_s"] for one in found)
        print(f"{name:24} median {middle:8.0f} frames/s, {middle / base:5.2f} x the wide field on BMv2")
    if args.out:
        args.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
