"""The root of the `p4reduce` command. Each package brings its own commands, under the entry points `p4reduce.commands`;
one is imported when it is called."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import click

from p4reduce_contracts.jobs.errors import JobServiceError
from p4reduce_runtime.pipeline_folders import PipelineNotFoundError
from p4reduce_runtime.settings import ConfigError
from p4reduce_runtime.terminal import one_line

COMMANDS = "p4reduce.commands"


class _Commands(click.Group):
    """The commands of all installed packages. Expected errors become one line on stderr and exit status 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names, for the help."""
        return sorted({entry.name for entry in metadata.entry_points(group=COMMANDS)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the package that brings this command; None when none does.

        A package that cannot be imported spoils its own command alone: the help shows why, and calling it is an error.
        """
        for entry in metadata.entry_points(group=COMMANDS, name=cmd_name):
            try:
                command = entry.load()
            except Exception as error:  # any error in a plugin's module
                return _broken(cmd_name, error)
            assert isinstance(command, click.Command)
            return command
        return None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command. An expected error becomes one line on stderr and exit status 1."""
        try:
            return super().invoke(ctx)
        except (JobServiceError, ConfigError, PipelineNotFoundError, OSError) as error:
            raise click.ClickException(one_line(error)) from error
        except ImportError as error:  # of an optional package
            raise click.ClickException(f"`{ctx.invoked_subcommand}` cannot be loaded: {one_line(error)}") from error


def _broken(name: str, error: Exception) -> click.Command:
    """Make a command that takes any arguments and says why there is no other."""
    text = f"cannot be loaded: {one_line(error)}"

    def refuse() -> None:
        raise click.ClickException(f"`p4reduce {name}` {text}") from error

    lenient = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=refuse, help=text, short_help=text, context_settings=lenient)


def _version() -> str:
    try:
        return metadata.version("p4reduce")
    except metadata.PackageNotFoundError:
        return "unknown (not installed)"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="p4reduce")
def main() -> None:
    """Sum gradients inside a P4 switch: run the switch, its controller, and jobs."""
