"""Run the corpus on BMv2 and write down its answers: python record.py (needs simple_switch_grpc).

python record.py            record every case, then compare with the embedded switch
python record.py --check    compare BMv2, the recordings and the embedded switch; write nothing
python record.py lpm drop   only these cases
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance import bmv2, recording  # noqa: E402
from conformance.case import Answers, Case, Write  # noqa: E402
from conformance.corpus import all_cases  # noqa: E402
from conformance.embedded import EmbeddedTarget  # noqa: E402
from conformance.exceptions import ANY_ORDER, DIFFERENT  # noqa: E402
from conformance.replay import differences, replay  # noqa: E402


def check(case: Case, fresh: Answers) -> list[str]:
    """What is wrong with the recording of a case or with the embedded switch, given BMv2's fresh answers."""
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


def main() -> int:
    parser = argparse.ArgumentParser(description="Record BMv2's answers to the conformance corpus.")
    parser.add_argument("cases", nargs="*", help="cases to run (default: all)")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = parser.parse_args()
    if bmv2.SWITCH is None:
        print("simple_switch_grpc is not on PATH: install BMv2 (behavioral-model)", file=sys.stderr)
        return 1
    known = all_cases()
    unknown = [name for name in options.cases if name not in known]
    if unknown:
        print(f"no such case: {', '.join(unknown)}", file=sys.stderr)
        return 2
    target_name = f"simple_switch_grpc {bmv2.version()}"
    frames = failed = 0
    started = time.monotonic()
    for name in options.cases or known:
        case = known[name]
        with bmv2.Bmv2Target() as target:
            fresh = replay(case, target)
        if not options.check:
            recording.save(case, target_name, fresh)
        found = check(case, fresh)
        for line in found:
            print(f"{name}: {line}")
        failed += bool(found)
        frames += sum(not isinstance(step, Write) for step in case.steps)
    if not options.cases and not options.check:
        for name in set(recording.names()) - set(known):
            (recording.RECORDINGS / f"{name}.jsonl.gz").unlink()
    count = len(options.cases or known)
    print(
        f"{count} cases, {frames} frames against {target_name} in {time.monotonic() - started:.0f} s: "
        f"{failed} cases differ"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
