"""The `p4reduce` command."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import click

from p4reduce_controller.cli.controller import controller
from p4reduce_controller.cli.demo import demo
from p4reduce_controller.cli.job import job
from p4reduce_controller.cli.output import HostPort, one_line
from p4reduce_controller.cli.stats import stats
from p4reduce_controller.cli.switch import switch
from p4reduce_controller.config import ConfigError
from p4reduce_controller.jobs.client import DEFAULT_CONTROLLER, JobServiceError
from p4reduce_controller.pipelines import PipelineNotFound
from p4reduce_testbed.cli import testbed


class _Commands(click.Group):
    """A command group that turns expected errors into one line on stderr and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except (JobServiceError, ConfigError, PipelineNotFound, OSError) as error:
            raise click.ClickException(one_line(error)) from error


def _version() -> str:
    try:
        return metadata.version("p4reduce")
    except metadata.PackageNotFoundError:
        return "unknown (not installed)"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="p4reduce")
@click.option(
    "--controller",
    "address",
    type=HostPort(),
    default=DEFAULT_CONTROLLER,
    envvar="P4REDUCE_CONTROLLER",
    show_default=True,
    show_envvar=True,
    help="Where the controller's job service is.",
)
@click.pass_context
def main(ctx: click.Context, address: str) -> None:
    """Sum gradients inside a P4 switch: run the switch, its controller, and jobs."""
    ctx.obj = address


for _command in (switch, controller, job, stats, demo, testbed):
    main.add_command(_command)
