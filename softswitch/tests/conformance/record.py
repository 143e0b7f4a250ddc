"""Run the corpus on BMv2 and write down its answers: python record.py (needs simple_switch_grpc).

python record.py            record every case of the small programs, then compare with the embedded switch
python record.py --check    compare BMv2, the recordings and the embedded switch; write nothing
python record.py lpm drop   only these cases
python record.py --steps FILE lpm
                            this case with other steps, or a new one; FILE has a step a line, as a recording has

A case over which BMv2 crashes keeps the recording it has; the others go on, and the exit status is not 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance import bmv2, recording  # noqa: E402
from conformance.case import Answers, Case, Step, Write, step_from_json  # noqa: E402
from conformance.corpus import all_cases, case_of, small_programs  # noqa: E402
from conformance.embedded import EmbeddedTarget  # noqa: E402
from conformance.exceptions import ANY_ORDER, DIFFERENT  # noqa: E402
from conformance.replay import differences, replay  # noqa: E402


def check(case: Case, fresh: Answers) -> list[str]:
    """Return what is wrong with the recording of a case or with the embedded switch, given BMv2's fresh answers."""
    found = []
    if case.name in recording.names():
        known = recording.load(case.name)
        if known.digests != case.digests():
            found.append("the recording was made with another build of the program")
        elif known.steps != case.steps:
            found.append("the corpus has changed since the recording was made")
        else:
            # PI's hash table may order a group's replicas otherwise in another process.
            again = differences(case.steps, known.answers, fresh, any_order=case.name in ANY_ORDER)
            found += [f"recording against BMv2: {line}" for line in again]
    else:
        found.append("there is no recording")
    with EmbeddedTarget() as target:
        ours = replay(case, target)
    differing = differences(case.steps, ours, fresh, any_order=case.name in ANY_ORDER)
    if case.name not in DIFFERENT:
        found += [f"embedded switch against BMv2: {line}" for line in differing]
    elif not differing:
        found.append("an exception is listed, but the embedded switch answers as BMv2 does")
    return found


def answers_of_bmv2(case: Case) -> Answers:
    """Return the answers of a BMv2 process of this case's own; Bmv2Error when it does not get through the case."""
    with bmv2.Bmv2Target() as target:
        try:
            return replay(case, target)
        except grpc.RpcError as error:
            raise bmv2.Bmv2Error(f"BMv2's P4Runtime server: {error}") from error


def steps_of(path: Path) -> tuple[Step, ...]:
    """The steps of a file in the form of a recording's text, of which it needs neither the answers nor head and end."""
    rows = (json.loads(line) for line in path.read_text().splitlines())
    return tuple(step_from_json(row) for row in rows if "case" not in row and "packet_ins" not in row)


def main(arguments: Sequence[str] | None = None, made: Mapping[str, Case] | None = None) -> int:
    """Run the command line; return its exit status. `made`: other cases than those of the small programs."""
    parser = argparse.ArgumentParser(description="Record BMv2's answers to the conformance corpus.")
    parser.add_argument("cases", nargs="*", help="cases to run (default: those of the small programs)")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("--steps", type=Path, metavar="FILE", help="new steps of the one case that is named")
    options = parser.parse_args(arguments)
    if bmv2.SWITCH is None:
        print("simple_switch_grpc is not on PATH: install BMv2 (behavioral-model)", file=sys.stderr)
        return 1
    known = {**all_cases(), **(made or {})}
    if options.steps is not None:
        if len(options.cases) != 1:
            parser.error("--steps takes one case")
        (name,) = options.cases
        known = {name: case_of(name, steps_of(options.steps))}
    unknown = [name for name in options.cases if name not in known]
    if unknown:
        print(f"no such case: {', '.join(unknown)}", file=sys.stderr)
        return 2
    build = bmv2.build()
    target_name = f"simple_switch_grpc {bmv2.release(build)}"
    frames = failed = 0
    not_played: list[str] = []
    started = time.monotonic()
    chosen = options.cases or made or small_programs()
    for name in chosen:
        case = known[name]
        try:
            fresh = answers_of_bmv2(case)
        except bmv2.Bmv2Error as error:
            print(f"{name}: {error}")
            not_played.append(name)
            continue
        if not options.check:
            recording.save(recording.Recording(name, target_name, case.digests(), case.steps, fresh))
        found = check(case, fresh)
        for line in found:
            print(f"{name}: {line}")
        failed += bool(found)
        frames += sum(not isinstance(step, Write) for step in case.steps)
    count = len(chosen) - len(not_played)
    print(
        f"{count} cases, {frames} frames against simple_switch_grpc {build} in {time.monotonic() - started:.0f} s: "
        f"{failed} cases differ"
    )
    if not_played:
        print(f"BMv2 did not get through these cases, whose recordings are as they were: {', '.join(not_played)}")
    return 1 if failed or not_played else 0


if __name__ == "__main__":
    sys.exit(main())
