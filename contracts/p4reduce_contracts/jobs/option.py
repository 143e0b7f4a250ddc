"""The option --controller: where the job service is."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from p4reduce_contracts.jobs import DEFAULT_CONTROLLER
from p4reduce_runtime.terminal import HostPort

_Command = Callable[..., None]
CONTROLLER_VARIABLE = "P4REDUCE_CONTROLLER"


def controller_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add --controller, as the keyword `address`: of this command, else of a command before it (`controller_for_all`),
    else of the environment, else the default. The first of them that is given is the only one looked at.
    """

    def resolve(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
        return value or controller_address(ctx)

    return _controller_option(resolve)(command)


def controller_address(ctx: click.Context) -> str:
    """Return where the controller is, for a command without --controller of its own. Raises UsageError."""
    if given := ctx.find_object(str):
        return given
    if not (from_environment := os.environ.get(CONTROLLER_VARIABLE)):
        return DEFAULT_CONTROLLER
    try:
        return HostPort().convert(from_environment, None, ctx)
    except click.BadParameter as error:
        raise click.UsageError(f"{CONTROLLER_VARIABLE}: {error.message}", ctx) from None


def controller_for_all(command: Callable[..., None]) -> Callable[..., None]:
    """Add --controller to a group, for those of its commands that have the option too."""

    def keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        ctx.obj = value

    return _controller_option(keep, expose_value=False)(command)


def _controller_option(
    callback: Callable[[click.Context, click.Parameter, str | None], str | None], expose_value: bool = True
) -> Callable[[_Command], _Command]:
    return click.option(
        "--controller",
        "address",
        type=HostPort(),
        callback=callback,
        expose_value=expose_value,
        help=f"Where the controller's job service is. [env var: {CONTROLLER_VARIABLE}; default: {DEFAULT_CONTROLLER}]",
    )
