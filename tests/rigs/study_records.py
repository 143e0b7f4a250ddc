"""Made-up results of the study, as small as a table can do with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from p4reduce_lab.study.grid import TASKS, Run

Record = dict[str, Any]


def record(run: Run, result: float | None, *, down: float = 1000.0, **others: Any) -> Record:
    """Return the record of a run with this accuracy or loss (None: it diverged); two of its steps took the switch."""
    task = TASKS[run.model]
    steps = [{"step": step, "bytes_up": down / 2, "bytes_down": down, "frames_again": 0} for step in (60, 70)]
    return {
        "id": run.id,
        **vars(run),
        "settings": task.settings,
        task.measure: result,
        "diverged_at": 3 if result is None else None,
        "train_loss": [[0, 4.0], [50, 3.0]],
        "residue_norm": [[0, 1.0], [50, 2.0], [100, 3.0]],
        "rates": {},
        "switch": steps if run.seed == 0 else [],
        "seconds": 1.0,
        **others,
    }


def put(folder: Path, *records: Record) -> None:
    """Each as the file of a finished run."""
    folder.mkdir(exist_ok=True)
    for one in records:
        (folder / f"{one['id']}.json").write_text(json.dumps(one), encoding="utf-8")
