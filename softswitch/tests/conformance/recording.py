"""Recorded cases: recordings/<case>.jsonl.gz, to be read with zcat.

The first line says what was recorded with what, then comes one line a step with its answer, and the last line
holds what there was at the end. Answers are recorded in their canonical form, and of the switch its version only: when
no case differs, recording again with another build of the same version changes no file.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.case import HERE, Answers, Step, answer_from_json, answer_to_json, step_from_json, step_to_json
from conformance.exceptions import ANY_ORDER

RECORDINGS = HERE / "recordings"


@dataclass(frozen=True)
class Recording:
    """The answers of `target` (name and version) to `steps` when the program had these digests."""

    case: str
    target: str
    digests: dict[str, str]
    steps: tuple[Step, ...]
    answers: Answers


def save(recording: Recording) -> None:
    """Write a recording, unless its file has this text already: zlib's versions compress the same text differently."""
    text = to_text(recording)
    path = _path(recording.case)
    if path.exists() and read_text(recording.case) == text:
        return
    RECORDINGS.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def to_text(recording: Recording) -> str:
    """Return the text of a recording's file; answers that compare equal give the same text."""
    answers = recording.answers.canonical(any_order=recording.case in ANY_ORDER)
    lines: list[Any] = [{"case": recording.case, "target": recording.target, "digests": recording.digests}]
    for step, answer in zip(recording.steps, answers.steps, strict=True):
        lines.append({**step_to_json(step), "answer": answer_to_json(answer)})
    lines.append(end_to_json(answers))
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def read_text(name: str) -> str:
    """Return what is in a recording's file, decompressed."""
    return gzip.decompress(_path(name).read_bytes()).decode()


def load(name: str) -> Recording:
    """Read one recording."""
    head, *rows, end = (json.loads(line) for line in read_text(name).splitlines())
    steps = tuple(step_from_json(row) for row in rows)
    answers = Answers(
        tuple(answer_from_json(row["answer"]) for row in rows),
        tuple((metadata, bytes.fromhex(payload)) for metadata, payload in end["packet_ins"]),
        tuple((name, tuple(values)) for name, values in end["digests"]),
        {name: {cell: tuple(both) for cell, both in cells.items()} for name, cells in end["counters"].items()},
    )
    return Recording(head["case"], head["target"], head["digests"], steps, answers)


def _path(name: str) -> Path:
    return RECORDINGS / f"{name}.jsonl.gz"


def names() -> list[str]:
    """All cases that are recorded."""
    return sorted(path.name.removesuffix(".jsonl.gz") for path in RECORDINGS.glob("*.jsonl.gz"))


def end_to_json(answers: Answers) -> dict[str, Any]:
    return {
        "packet_ins": [[dict(metadata), payload.hex()] for metadata, payload in answers.packet_ins],
        "digests": [[name, list(values)] for name, values in answers.digests],
        "counters": {name: {c: list(both) for c, both in cells.items()} for name, cells in answers.counters.items()},
    }
