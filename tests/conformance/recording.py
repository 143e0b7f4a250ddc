"""Recorded cases: recordings/<case>.jsonl.gz, to be read with zcat.

The first line says what was recorded with what, then comes one line a step with its answer, and the last line
holds what there was at the end.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import Any

from conformance.case import (
    HERE,
    Answers,
    Case,
    Step,
    answer_from_json,
    answer_to_json,
    step_from_json,
    step_to_json,
)

RECORDINGS = HERE / "recordings"


@dataclass(frozen=True)
class Recording:
    """What `target` (name and version) answered to `steps` when the program had these digests."""

    case: str
    target: str
    digests: dict[str, str]
    steps: tuple[Step, ...]
    answers: Answers


def save(case: Case, target: str, answers: Answers) -> None:
    """Write a recording; the same answers give the same bytes."""
    lines: list[Any] = [{"case": case.name, "target": target, "digests": case.digests()}]
    for step, answer in zip(case.steps, answers.steps, strict=True):
        lines.append({**step_to_json(step), "answer": answer_to_json(answer)})
    lines.append(end_to_json(answers))
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    RECORDINGS.mkdir(exist_ok=True)
    (RECORDINGS / f"{case.name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def load(name: str) -> Recording:
    """Read one recording."""
    text = gzip.decompress((RECORDINGS / f"{name}.jsonl.gz").read_bytes()).decode()
    head, *rows, end = (json.loads(line) for line in text.splitlines())
    steps = tuple(step_from_json(row) for row in rows)
    answers = Answers(
        tuple(answer_from_json(row["answer"]) for row in rows),
        tuple((metadata, bytes.fromhex(payload)) for metadata, payload in end["packet_ins"]),
        tuple((name, tuple(values)) for name, values in end["digests"]),
        {name: {cell: tuple(both) for cell, both in cells.items()} for name, cells in end["counters"].items()},
    )
    return Recording(head["case"], head["target"], head["digests"], steps, answers)


def names() -> list[str]:
    """All cases that are recorded."""
    return sorted(path.name.removesuffix(".jsonl.gz") for path in RECORDINGS.glob("*.jsonl.gz"))


def end_to_json(answers: Answers) -> dict[str, Any]:
    return {
        "packet_ins": [[dict(metadata), payload.hex()] for metadata, payload in answers.packet_ins],
        "digests": [[name, list(values)] for name, values in answers.digests],
        "counters": {name: {c: list(both) for c, both in cells.items()} for name, cells in answers.counters.items()},
    }
