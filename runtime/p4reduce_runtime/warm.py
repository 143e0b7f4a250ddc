"""`p4reduce warm`."""

from __future__ import annotations

import click

from p4reduce_runtime import kernels


@click.command()
def warm() -> None:
    """Compile what is compiled on first use, so that the first job need not wait for it."""
    try:
        for package, seconds in kernels.warm():
            click.echo(f"{package}: {seconds:.1f} s")
    except kernels.NotCachedError as error:
        raise click.ClickException(f"what is compiled cannot be kept: {error}") from error
    except kernels.CompilationError as error:
        raise click.ClickException(str(error)) from error
    click.echo("all kernels are compiled")
