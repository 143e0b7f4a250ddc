"""What commands share: options, tables for people, JSON for programs, errors in one line."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from p4reduce_contracts.jobs import DEFAULT_CONTROLLER

_WIDTH_OF_A_FILE = 200

json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of a table."
)


class HostPort(click.ParamType[str]):
    """HOST:PORT."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
        host, _, port = str(value).rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT, like 127.0.0.1:9600", param, ctx)
        return str(value)


def controller_option(command: Callable[..., None]) -> Callable[..., None]:
    """--controller, as `address`: of this command, or else of the command above it, the environment, the default."""

    def inherited(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
        typed = ctx.get_parameter_source("address") is ParameterSource.COMMANDLINE
        ctx.obj = value if typed else ctx.obj or value or DEFAULT_CONTROLLER
        return str(ctx.obj)

    return click.option(
        "--controller",
        "address",
        type=HostPort(),
        envvar="P4REDUCE_CONTROLLER",
        show_envvar=True,
        callback=inherited,
        help=f"Where the controller's job service is. [default: {DEFAULT_CONTROLLER}]",
    )(command)


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
    """An error's message without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
