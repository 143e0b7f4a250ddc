"""What commands share: options, tables for people, JSON for programs, errors in one line."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from p4reduce_runtime import logs, settings

_Command = Callable[..., None]

json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of a table."
)


class HostPort(click.ParamType[str]):
    """The type of click's options that take HOST:PORT."""

    name = "HOST:PORT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text unchanged, or fail."""
        try:
            return settings.HostPort(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def log_options(command: _Command) -> _Command:
    """Add --log-level and --log-json, which configure the logs; they are not passed to the command."""

    @functools.wraps(command)
    def run(*, log_level: str, log_json: bool, **options: object) -> None:
        logs.configure(log_level, log_json)
        command(**options)

    level = click.option(
        "--log-level",
        type=click.Choice(logs.LEVELS),
        default="info",
        show_default=True,
        help="The lowest level that is logged to stderr.",
    )
    as_json = click.option("--log-json", is_flag=True, help="Log one JSON object a line.")
    return level(as_json(run))


def print_json(value: object) -> None:
    """Print dataclasses (or a list or dict of them) as JSON."""
    click.echo(json.dumps(value, default=dataclasses.asdict, indent=2))


def table(
    columns: Sequence[str | None],
    rows: Iterable[Iterable[object]],
    title: str | None = None,
    caption: str | None = None,
) -> Table:
    """Return a table; columns whose name begins with "#" hold numbers, and those without a name are left out."""
    made = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for column in columns:
        if column is not None:
            made.add_column(column.lstrip("#"), justify="right" if column.startswith("#") else "left")
    for row in rows:
        made.add_row(*(str(cell) for column, cell in zip(columns, row, strict=True) if column is not None))
    return made


def console(width_of_a_file: int = 200, *, markup: bool = False) -> Console:
    """Return the terminal, or standard output as a file; without `markup` square brackets are text."""
    return Console(width=None if sys.stdout.isatty() else width_of_a_file, highlight=False, markup=markup)


def print_table(columns: Sequence[str | None], rows: Iterable[Iterable[object]], title: str | None = None) -> None:
    """Print a table, as `table` makes it."""
    console().print(table(columns, rows, title))


def one_line(error: BaseException) -> str:
    """Return an error's message without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
