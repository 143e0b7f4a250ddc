"""The reports of demo, testbed, benchmark, study and papers: tables, pictures and files, and what was measured on."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Table:
    """A table of text."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return it as Markdown; without rows, a sentence."""
        if not self.rows:
            return "None of these trainings has been run yet."
        lines = [self.headings, ["---"] * len(self.headings), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mean_and_deviation(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Show the mean, and of several values the standard deviation; "not known" without values."""
    if not values:
        return "not known"
    text = show(statistics.mean(values))
    return f"{text} ± {show(statistics.stdev(values))}" if len(values) > 1 else text


def mean_and_range(values: Sequence[float | None], digits: int) -> str:
    """Show the mean of a value a seed, the least and the most, and how many seeds diverged (None)."""
    known = [value for value in values if value is not None]
    diverged = len(values) - len(known)
    if not known:
        return "diverged"
    mean, least, most = (f"{value:.{digits}f}" for value in (statistics.mean(known), min(known), max(known)))
    text = f"{mean} (1 seed)" if len(known) == 1 else f"{mean} ({least} to {most})"
    return text + (f", {diverged} diverged" if diverged else "")


@contextmanager
def picture(path: Path, panels: int, *, width: float = 13.0, title: str = "") -> Iterator[list[Axes]]:
    """Yield the axes of so many panels side by side; at the end of the block write the PNG.

    `width`: inches of the whole picture. Raises ImportError without matplotlib.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4.2))
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    yield axes
    for one in axes:
        one.grid(alpha=0.3)
    if title:
        figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def write_json(path: Path, document: object) -> None:
    """Write a results file."""
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def write_records(path: Path, records: Iterable[Mapping[str, object]]) -> None:
    """Write a JSON list, one record a line."""
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in records)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def machine() -> dict[str, str | int | None]:
    """Return what numbers are measured on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": cores,
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
