"""`p4reduce certs ...`: certificates by which controller, switch and workers authenticate each other."""

from __future__ import annotations

from pathlib import Path

import click

_folder = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
_days = click.option(
    "--days", type=click.IntRange(1, 36500), default=365, show_default=True, help="How long they are valid."
)


@click.group()
def certs() -> None:
    """Make certificates for controller, switch and workers."""


@certs.command()
@_folder
@_days
def init(folder: Path, days: int) -> None:
    """Make an authority in DIR, and certificates for the controller, the switch and a worker."""
    from p4reduce_runtime.certificates import make_all

    _tell(make_all(folder, days))
    click.echo("keep ca.key secret: it can sign certificates; see docs/security.md")


@certs.command()
@_folder
@click.argument("name")
@_days
def add(folder: Path, name: str, days: int) -> None:
    """Make another worker's certificate, NAME, by the authority in DIR."""
    from p4reduce_runtime.certificates import add_worker

    _tell(add_worker(folder, name, days))


def _tell(files: list[Path]) -> None:
    for file in files:
        click.echo(str(file))
