"""The results of the tests by program, test and switch: kept between runs, counted, and written as a table."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from conformance.case import canonical_answer
from fidelity.generated import Outputs
from fidelity.playing import BMV2, Outcome, Verdict

BEHIND = "behind"
DIFFER = "differ"
LACKING = "lacking"


@dataclass
class Record:
    """A program's tests and how they ended: outcomes[switch][test]. `problem` says why there are no tests."""

    name: str
    group: str
    problem: str = ""
    unreadable: int = 0
    outcomes: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    """The key of all that each switch's outcomes for a seed depend on: if it changes, they are made anew."""

    @property
    def tests(self) -> int:
        """Number of tests that were played."""
        return len(self.outcomes.get(BMV2, {}))

    def counts(self, switch: str) -> Counter[str]:
        """Tests by verdict; for the embedded switch also beside BMv2.

        Behind: BMv2 passes, it fails. Differ: something else leaves. Lacking: BMv2 plays what it refuses by name.
        """
        found: Counter[str] = Counter(outcome.verdict.value for outcome in self.outcomes.get(switch, {}).values())
        if switch != BMV2:
            for test, outcome in self.outcomes.get(switch, {}).items():
                theirs = self.outcomes[BMV2][test]
                found[BEHIND] += theirs.verdict is Verdict.PASS and outcome.verdict in (Verdict.FAIL, Verdict.ERROR)
                found[LACKING] += theirs.played and outcome.verdict is Verdict.REFUSED
                found[DIFFER] += theirs.played and outcome.played and not same(theirs.outputs, outcome.outputs)
        return +found

    def behind(self, switch: str) -> list[str]:
        """The tests that BMv2 passes and this switch fails, with what it did."""
        return [
            f"{test}: {outcome.reason or shown(outcome.outputs)}; BMv2: {shown(self.outcomes[BMV2][test].outputs)}"
            for test, outcome in self.outcomes.get(switch, {}).items()
            if self.outcomes[BMV2][test].verdict is Verdict.PASS and outcome.verdict in (Verdict.FAIL, Verdict.ERROR)
        ]


def same(ours: Outputs, theirs: Outputs) -> bool:
    """Whether the same frames left, in the same order for each port."""
    return canonical_answer(ours, any_order=False) == canonical_answer(theirs, any_order=False)


def shown(outputs: Outputs) -> str:
    """Return the frames that left, as text."""
    return " ".join(f"{port}:{frame.hex()}" for port, frame in outputs) or "nothing"


# ---- between runs


def save(record: Record, path: Path) -> None:
    """Write a record; a reader sees the whole of it or the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(record))
    fresh.replace(path)


def load(name: str, group: str, path: Path) -> Record:
    """The record of an earlier run; an empty one when there is none."""
    return msgspec.json.decode(path.read_bytes(), type=Record) if path.exists() else Record(name, group)


def digest(paths: Iterable[Path]) -> str:
    """SHA-256 of files, in the order of their paths."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


# ---- the report


def as_json(records: Iterable[Record], about: Mapping[str, Any]) -> str:
    """Names and counts of all programs, as text; the same records make the same text."""
    programs = {
        f"{record.group}/{record.name}": {
            "tests": record.tests,
            **({"problem": record.problem} if record.problem else {}),
            **({"unreadable": record.unreadable} if record.unreadable else {}),
            **{switch: dict(sorted(record.counts(switch).items())) for switch in record.outcomes},
        }
        for record in records
    }
    return json.dumps({**about, "programs": programs}, indent=1, sort_keys=True) + "\n"


_COLUMNS = (Verdict.PASS, Verdict.FAIL, Verdict.REFUSED, Verdict.ERROR)
_BESIDE = {BEHIND: "BMv2 passes, it fails", DIFFER: "something else leaves", LACKING: "refused, BMv2 plays it"}


def as_markdown(records: Iterable[Record], about: Mapping[str, Any]) -> str:
    """The counts as a page: totals, then each program that the embedded switch does not get through as BMv2 does."""
    all_records = list(records)
    played = [record for record in all_records if record.tests]
    switches = list(dict.fromkeys(switch for record in played for switch in record.outcomes))
    lines = [
        "# Fidelity: generated tests on BMv2 and on the embedded switch",
        "",
        "Generated by `make fidelity`: p4testgen generates tests of every v1model program of p4c's samples and of",
        "this project by symbolic execution, and each runs on BMv2 and on the embedded switch.",
        "`docs/switch/fidelity.json` has each program's counts, and why a program has no tests.",
        "",
        ", ".join(f"{name} {value}" for name, value in about.items()) + ".",
        "",
        f"{len(all_records)} programs, {len(played)} of them with tests, "
        f"{sum(record.tests for record in played)} tests.",
        "",
        "| switch | as the test expects | otherwise | refused by name | invalid, or ended |",
        "| --- | --- | --- | --- | --- |",
    ]
    totals = {switch: sum((record.counts(switch) for record in played), Counter[str]()) for switch in switches}
    for switch, total in totals.items():
        lines.append(f"| {switch} | {' | '.join(str(total[verdict.value]) for verdict in _COLUMNS)} |")
    lines += ["", f"| beside BMv2 | {' | '.join(_BESIDE.values())} |", "| --- | --- | --- | --- |"]
    for switch, total in totals.items():
        if switch != BMV2:
            lines.append(f"| {switch} | {' | '.join(str(total[count]) for count in _BESIDE)} |")
    rows = [
        f"| {record.name} | {switch} | {record.tests} | {' | '.join(str(counts[count]) for count in _BESIDE)} |"
        for record in played
        for switch in switches
        if switch != BMV2
        for counts in (record.counts(switch),)
        if any(counts[count] for count in _BESIDE)
    ]
    if rows:
        titles = f"| program | switch | tests | {' | '.join(_BESIDE.values())} |"
        lines += ["", titles, "| --- | --- | --- | --- | --- | --- |", *rows]
    lines += _refused(played)
    return "\n".join(lines) + "\n"


def _refused(played: Iterable[Record]) -> list[str]:
    """What a switch refuses by name, and how BMv2 ended these tests."""
    rows = []
    for record in played:
        refused: dict[str, dict[str, set[str]]] = {}
        for switch, outcomes in record.outcomes.items():
            for test, outcome in outcomes.items():
                if switch != BMV2 and outcome.verdict is Verdict.REFUSED:
                    refused.setdefault(outcome.reason, {}).setdefault(switch, set()).add(test)
        for reason, by_switch in refused.items():
            tests = set().union(*by_switch.values())
            theirs = Counter(record.outcomes[BMV2][test].verdict.value for test in tests)
            counts = ", ".join(f"{verdict} {count}" for verdict, count in sorted(theirs.items()))
            rows.append(f"| {record.name} | {', '.join(by_switch)} | {len(tests)} | {reason} | {counts} |")
    if not rows:
        return []
    title = "| program | switch | tests | refused | BMv2 |"
    return ["", "What the embedded switch refuses:", "", title, "| --- | --- | --- | --- | --- |", *rows]
