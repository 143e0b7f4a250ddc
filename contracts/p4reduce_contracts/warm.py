"""`p4reduce warm`."""

from __future__ import annotations

import click

from p4reduce_contracts import kernels
from p4reduce_contracts.cache import cache_folder


@click.command()
def warm() -> None:
    """Compile what is compiled on first use, so that the first job need not wait for it.

    Where numba is missing there is nothing to compile: everything runs in plain Python then, more slowly.
    """
    if not kernels.enabled():
        click.echo("kernels are off: numba is not installed, or P4REDUCE_KERNELS=off")
        return
    if cache_folder() is None:
        raise click.ClickException(
            "nothing was compiled, as it could not be kept: set P4REDUCE_CACHE_DIR to a folder that only you can write"
        )
    try:
        for package, seconds in kernels.warm():
            click.echo(f"{package}: {seconds:.1f} s")
    except kernels.CompilationFailed as error:
        raise click.ClickException(str(error)) from error
    click.echo("all kernels are compiled")
