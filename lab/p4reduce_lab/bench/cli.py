"""`p4reduce bench`: compare p4reduce with gloo and BMv2."""

from __future__ import annotations

from pathlib import Path

import click

from p4reduce_runtime.terminal import one_line


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("bench-out"),
    show_default=True,
    help="Folder for the results.",
)
@click.option(
    "--only", multiple=True, metavar="CASE", help="Run this case alone. May be repeated, or several be given like a,b."
)
@click.option("--quick", is_flag=True, help="Fewer repetitions and smaller sizes: the thresholds are not final.")
@click.option("--again", is_flag=True, help="Measure anew what an earlier run of the same software has measured.")
@click.option("--check", is_flag=True, help="End with status 1 if a threshold is missed or was not measured.")
@click.option("--list", "listing", is_flag=True, help="List the cases, what they need and their thresholds.")
@click.pass_context
def bench(
    context: click.Context, out: Path, only: tuple[str, ...], quick: bool, again: bool, check: bool, listing: bool
) -> None:
    """Compare p4reduce with gloo and BMv2.

    As root it builds network namespaces with shaped links; otherwise it measures loopback only. Ends with status 1
    when a case fails. All-reduces have the columns algbw and busbw of nccl-tests.
    """
    try:
        from p4reduce_lab.bench.cases import CASES
        from p4reduce_lab.bench.run import run_bench
    except ImportError as error:
        raise click.ClickException(f"the benchmark cannot be loaded: {one_line(error)}") from error
    if listing:
        for case in CASES:
            click.echo(f"{case.name}: {case.about}")
            for need in case.needs:
                click.echo(f"    needs {need.what}{'' if need.there() else ' (not here)'}")
            for threshold in case.thresholds:
                click.echo(f"    threshold: {threshold.name}: at least {threshold.at_least:g}")
        return
    names = [name for text in only for name in text.split(",")]
    context.exit(0 if run_bench(out, names, quick=quick, again=again, check=check) else 1)
