"""`p4reduce demo`: the whole system on one machine."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-out"),
    show_default=True,
    help="Folder for the results.",
)
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Repetitions.")
@click.option("--epochs", type=click.IntRange(min=1), help="Training epochs. [default: the demo's own]")
@click.option("--pipeline", default="default", show_default=True, help="Geometry name, or a folder.")
@click.option(
    "--racks",
    type=click.IntRange(min=1, max=4),
    default=1,
    show_default=True,
    help="Racks of workers, each with a switch, below another switch.",
)
@click.option(
    "--drop-chance",
    type=click.FloatRange(min=0, max=0.5),
    default=0.0,
    show_default=True,
    help="The chance that a frame between a worker and its switch is lost.",
)
@click.option("--watch", is_flag=True, help="Instead, record one small sum: a page that shows it in slow motion.")
@click.option(
    "--switches",
    type=click.IntRange(min=1, max=4),
    default=1,
    show_default=True,
    help="With --watch: switches side by side.",
)
def demo(
    out: Path, seeds: int, epochs: int | None, pipeline: str, racks: int, drop_chance: float, watch: bool, switches: int
) -> None:
    """Train a small model on this machine, and compare.

    A switch, a controller and four workers are started; they train with gloo, over the switch, and compressed.
    """
    if switches > 1 and (racks > 1 or not watch):
        raise click.UsageError("--switches is for --watch, without --racks")
    if watch and drop_chance:
        raise click.UsageError("--drop-chance is for the trainings: --watch loses one frame anyway")
    if watch:
        from p4reduce_lab.watch import run_watch

        run_watch(out, racks=racks, switches=switches)
        return
    from p4reduce_lab.demo import run_demo

    run_demo(out=out, seeds=seeds, epochs=epochs, pipeline=pipeline, racks=racks, drop_chance=drop_chance)
