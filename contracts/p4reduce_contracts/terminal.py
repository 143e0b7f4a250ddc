"""What commands share: options, tables for people, JSON for programs, errors in one line."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from p4reduce_contracts import logs
from p4reduce_contracts.checked import is_host_port
from p4reduce_contracts.jobs import DEFAULT_CONTROLLER

_WIDTH_OF_A_FILE = 200
_Command = Callable[..., None]
CONTROLLER_VARIABLE = "P4REDUCE_CONTROLLER"

json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of a table."
)


class HostPort(click.ParamType[str]):
    """HOST:PORT."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as it is, or fail."""
        if not is_host_port(str(value)):
            self.fail(f"{value!r} is not HOST:PORT, like 127.0.0.1:9600", param, ctx)
        return str(value)


def controller_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add --controller, as the keyword `address`: of this command, else of a command before it (`controller_for_all`),
    else of the environment, else the default. The first of them that is given is the only one looked at.
    """

    def resolve(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
        if given := value or ctx.find_object(str):
            return given
        if not (from_environment := os.environ.get(CONTROLLER_VARIABLE)):
            return DEFAULT_CONTROLLER
        try:
            return HostPort().convert(from_environment, None, ctx)
        except click.BadParameter as error:
            raise click.UsageError(f"{CONTROLLER_VARIABLE}: {error.message}", ctx) from None

    return _controller_option(resolve)(command)


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


def log_options(command: _Command) -> _Command:
    """Add --log-level and --log-json, which say how this process logs; the command itself does not get them."""

    @functools.wraps(command)
    def run(*, log_level: str, log_json: bool, **options: Any) -> None:
        logs.configure(log_level, log_json)
        command(**options)

    level = click.option(
        "--log-level",
        type=click.Choice(logs.LEVELS),
        default="info",
        show_default=True,
        help="What is logged to stderr: this and what is worse.",
    )
    as_json = click.option("--log-json", is_flag=True, help="Log one JSON object a line.")
    return level(as_json(run))


def print_json(value: Any) -> None:
    """Print dataclasses (or a list or dict of them) as JSON."""
    click.echo(json.dumps(value, default=dataclasses.asdict, indent=2))


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]], title: str | None = None) -> None:
    """Print a table; columns whose name begins with "#" hold numbers."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column.lstrip("#"), justify="right" if column.startswith("#") else "left")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    width = None if sys.stdout.isatty() else _WIDTH_OF_A_FILE
    Console(width=width, highlight=False, markup=False).print(table)


def one_line(error: BaseException) -> str:
    """Return an error's message without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
