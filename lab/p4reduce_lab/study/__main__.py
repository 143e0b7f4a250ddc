"""`python -m p4reduce_lab.study`: run what is missing of the study, then write its report into docs/."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path

import click

from p4reduce_lab.study.grid import runs
from p4reduce_lab.study.report import write_report
from p4reduce_lab.study.results import read
from p4reduce_lab.study.run import train_all

ROOT = Path(__file__).resolve().parents[3]


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "out" / "study", help="Results, data and logs.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Trainings at a time.")
@click.option("--device", default="cpu", show_default=True, help="Where models are trained, e.g. cuda.")
@click.option("--only", default="*", show_default=True, help="Only the runs whose name matches, e.g. 'mnist-mlp-4-*'.")
@click.option("--report-only", is_flag=True, help="Train nothing, write the report of what is there.")
def main(out: Path, jobs: int, device: str, only: str, report_only: bool) -> None:
    """Run the study. Finished runs, whose results are files in OUT/runs, are not repeated."""
    wanted = [run for run in runs() if fnmatchcase(run.id, only)]
    if not wanted:
        raise click.ClickException(f"no run matches {only!r}; their names are like {next(runs()).id}")
    results = out / "runs"
    results.mkdir(parents=True, exist_ok=True)
    finished = {record["id"] for record in read(results)}
    missing = [run for run in wanted if run.id not in finished]
    failed = train_all(missing, out, jobs, device) if missing and not report_only else 0
    write_report(results, ROOT / "docs")
    if failed:
        sys.exit(f"{failed} runs failed; start the study again to try them once more")


if __name__ == "__main__":
    main()
