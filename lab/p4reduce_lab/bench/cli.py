"""`p4reduce bench`: compare p4reduce with gloo and Open MPI, and measure collectives as nccl-tests does."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import click

_TYPES: Final = ("float", "half", "bfloat16", "int32")
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@click.group(invoke_without_command=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("bench-out"),
    show_default=True,
    help="Folder for the results.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="CASE",
    help="Run this case alone, or all of CASE-*. May be repeated, or several be given like a,b.",
)
@click.option("--quick", is_flag=True, help="Fewer repetitions and smaller sizes: the thresholds are not final.")
@click.option("--again", is_flag=True, help="Measure anew what an earlier run of the same software has measured.")
@click.option("--check", is_flag=True, help="End with status 1 if a threshold is missed or was not measured.")
@click.option("--list", "listing", is_flag=True, help="List the cases, what they need and their thresholds.")
@click.pass_context
def bench(
    context: click.Context, out: Path, only: tuple[str, ...], quick: bool, again: bool, check: bool, listing: bool
) -> None:
    """Compare p4reduce with gloo and Open MPI.

    With the name of a collective: measure it over the switch that runs already, as nccl-tests does. Without: run the
    cases, for which the options here are. As root they build network namespaces with shaped links; otherwise they
    measure loopback only. Ends with status 1 when a case fails.
    """
    if context.invoked_subcommand is not None:
        return
    from p4reduce_lab.bench.cases import CASES
    from p4reduce_lab.bench.run import run_bench

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


def _size(context: click.Context, option: click.Parameter, text: str) -> int:
    """Return the bytes of a size as nccl-tests takes it: K, M and G are powers of 1024."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if found is None or not int(found[1]):
        raise click.BadParameter(f"{text!r} is no size: give bytes, like 8, 64K or 1G", context, option)
    return int(found[1]) * _UNITS[found[2]]


def _add(collective: str) -> None:

    @bench.command(collective, short_help=f"Measure {collective} over the running switch, as nccl-tests does.")
    @click.option("-b", "--minbytes", callback=_size, default="8", show_default=True, help="The least size.")
    @click.option("-e", "--maxbytes", callback=_size, default="64M", show_default=True, help="The largest size.")
    @click.option("-f", "--stepfactor", type=click.IntRange(2), default=2, show_default=True, help="Between sizes.")
    @click.option("-n", "--iters", type=click.IntRange(1), default=20, show_default=True, help="Timed iterations.")
    @click.option("-w", "--warmup_iters", type=click.IntRange(0), default=1, show_default=True, help="Before them.")
    @click.option(
        "-d", "--datatype", type=click.Choice(_TYPES), default="float", show_default=True, help="Type of the numbers."
    )
    @click.option("-J", "--output_file", type=click.Path(dir_okay=False), help="A new file for nccl-tests' JSON.")
    @click.option("--gloo", is_flag=True, help='Below each row gloo\'s, which begins with "#".')
    @click.pass_context
    def measure(context: click.Context, /, **given: Any) -> None:
        """Measure a collective over the running switch, as nccl-tests does.

        Start it as every rank of a launch, like a training:

            torchrun --nproc-per-node 2 --no-python p4reduce bench all_reduce -b 8 -e 64M -f 2

        It makes a job of its own at the controller in P4REDUCE_CONTROLLER. Ends with status 1 when a result was wrong.
        """
        if given["minbytes"] > given["maxbytes"]:
            raise click.UsageError("-b is larger than -e", context)
        if not os.environ.get("WORLD_SIZE", "").isdecimal() or int(os.environ["WORLD_SIZE"]) < 2:
            launch = f"torchrun --nproc-per-node 2 --no-python p4reduce bench {collective} ..."
            raise click.ClickException(f"a collective takes two ranks or more: start it by a launcher, as `{launch}`")
        from p4reduce_lab.bench.nccl_tests import CollectiveTest, run

        context.exit(0 if run(CollectiveTest(collective, **given)) else 1)

    if collective == "all_reduce":
        link = click.Option(
            ["--link"],
            type=click.FloatRange(min=0, min_open=True),
            metavar="MBIT",
            help="Rate of the hosts' links each way: below each row the least time that they allow.",
        )
        measure.params.append(link)


for _collective in ("all_reduce", "reduce_scatter"):
    _add(_collective)
