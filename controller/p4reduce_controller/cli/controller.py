"""`p4reduce controller ...`: the controller of one switch or several, and the list of its switches."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from p4reduce_contracts.jobs import DEFAULT_CONTROLLER
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.option import controller_option
from p4reduce_controller import config
from p4reduce_runtime.readiness import notify_ready
from p4reduce_runtime.terminal import HostPort, json_option, log_options, one_line, print_json, print_table
from p4reduce_runtime.underlay import AGGREGATION_PORT

if TYPE_CHECKING:
    from p4reduce_controller.service.process import Controller


@click.group()
def controller() -> None:
    """Run the controller, or list its switches."""


@controller.command()
@click.option("--config", "path", type=click.Path(path_type=Path, dir_okay=False), help="TOML file. [default: none]")
@click.option("--listen", type=HostPort(), help=f"Where the job service listens. [default: {DEFAULT_CONTROLLER}]")
@click.option("--p4runtime", type=HostPort(), help="The switch to control. [default: 127.0.0.1:9559]")
@click.option(
    "--switch",
    type=HostPort(),
    help=f"The switch as workers see it, IPv4:UDPPORT. [default: 127.0.0.1:{AGGREGATION_PORT}]",
)
@click.option("--pipeline", help="Geometry name, or folder of a compiled program. [default: default]")
@click.option("--insecure", is_flag=True, help="Serve beyond loopback without TLS, to every caller.")
@click.option("--metrics", type=HostPort(), help="Serve metrics for Prometheus there. [default: nowhere]")
@log_options
def run(path: Path | None, **changes: Any) -> None:
    """Set the program of the switches and serve jobs until interrupted."""
    from p4reduce_controller.service.process import ControllerError, run_controller
    from p4reduce_runtime.kernels import warm_in_background
    from p4reduce_runtime.p4runtime.errors import P4RuntimeError

    settings = config.override(config.load(path), **changes)
    stack = ExitStack()

    def ready(running: Controller) -> None:
        click.echo(
            f"controller ready: jobs on {running.address}, {_switches(settings)}"
            + (f", metrics on {running.metrics_address}" if running.metrics_address else "")
        )
        notify_ready()
        stack.enter_context(warm_in_background())

    try:
        with stack:
            run_controller(settings, ready)
    except (P4RuntimeError, ControllerError) as error:
        raise click.ClickException(one_line(error)) from error


@controller.command()
@json_option
@controller_option
def switches(address: str, as_json: bool) -> None:
    """List the switches of a controller, their links, and what is wrong with them."""
    with JobClient(address) as client:
        listed = client.list_switches()
    if as_json:
        print_json(listed)
        return
    print_table(
        (
            "switch",
            "P4Runtime",
            "workers send to",
            "parent",
            "#uplink port",
            "#parent's port",
            "#ranks",
            "#jobs",
            "state",
        ),
        (
            (
                each.name,
                each.p4runtime,
                f"{each.host}:{each.port}",
                each.parent or "-",
                each.uplink_port if each.parent else "-",
                each.parent_port if each.parent and not each.link_problem else "-",
                each.ranks,
                each.jobs,
                "; ".join(filter(None, (each.problem, each.link_problem))) or "ready",
            )
            for each in listed
        ),
    )


def _switches(settings: config.Config) -> str:
    pipelines = sorted({switch.pipeline for switch in settings.switches})
    if len(settings.switches) == 1:
        return f"switch at {settings.switches[0].p4runtime}, pipeline {pipelines[0]}"
    places = ", ".join(f"{switch.name} at {switch.p4runtime}" for switch in settings.switches)
    return f"switches {places}, pipeline {', '.join(pipelines)}"
