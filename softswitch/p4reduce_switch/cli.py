"""`p4reduce switch ...`: the embedded software switch."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path
from typing import Any

import click

from p4reduce_runtime.environment import P4REDUCE_SWITCH_THREADS
from p4reduce_runtime.readiness import notify_ready
from p4reduce_runtime.settings import ConfigError
from p4reduce_runtime.terminal import HostPort, log_options, one_line
from p4reduce_runtime.underlay import AGGREGATION_PORT, UPLINK_PORT

FORMATS = ("text", "json", "bmv2")


@click.group()
def switch() -> None:
    """Run the software switch."""


@switch.command()
@click.option(
    "--pipeline",
    help="Start with this pipeline: a name, a folder, or PROGRAM.json beside PROGRAM.p4info.txtpb. "
    "[default: wait for the controller's]",
)
@click.option(
    "--listen",
    type=HostPort(),
    default=f"127.0.0.1:{AGGREGATION_PORT}",
    show_default=True,
    help="UDP address that workers send to.",
)
@click.option(
    "--uplink",
    type=HostPort(),
    help=f"UDP address of the parent switch, the peer at port {UPLINK_PORT}. [default: there is none]",
)
@click.option(
    "-i",
    "--interface",
    "interfaces",
    multiple=True,
    metavar="PORT@DEVICE",
    help="A network device as a switch port, like 1@veth1. May be repeated.",
)
@click.option(
    "--p4runtime",
    type=HostPort(),
    default="127.0.0.1:9559",
    show_default=True,
    help="Where its P4Runtime server listens.",
)
@click.option("--device-id", type=click.IntRange(min=0), default=1, show_default=True, help="P4Runtime device id.")
@click.option(
    "--cpu-port",
    type=click.IntRange(min=0, max=510),
    default=510,
    show_default=True,
    help="The port that leads to the controller.",
)
@click.option("--tls-ca", metavar="FILE", help="P4Runtime over TLS: the authority of controllers' certificates.")
@click.option("--tls-certificate", metavar="FILE", help="The switch's own certificate.")
@click.option("--tls-key", metavar="FILE", help="The private key of that.")
@click.option("--insecure", is_flag=True, help="Serve P4Runtime beyond loopback without TLS, to every caller.")
@click.option("--metrics", type=HostPort(), help="Serve metrics for Prometheus there. [default: nowhere]")
@click.option(
    "--gso",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="Send frames of equal length as one GSO frame; off where the peer is BMv2, which does not split it.",
)
@click.option(
    "--threads",
    type=click.IntRange(0, 64),
    default=1,
    envvar=P4REDUCE_SWITCH_THREADS.name,
    show_default=True,
    show_envvar=True,
    help="Threads that share the frames of UDP peers, without queues; 0: one less than there are cores.",
)
@click.option(
    "--trace",
    type=click.Choice(FORMATS),
    is_flag=False,
    flag_value="text",
    help="Print what each frame does, which makes the switch slow: text, json or bmv2. [default: text if given alone]",
)
@log_options
def run(**options: Any) -> None:
    """Run a software switch until interrupted."""
    from p4reduce_runtime import kernels
    from p4reduce_switch.run import SwitchError, SwitchOptions, run_switch

    def ready(line: str) -> None:
        click.echo(line)
        notify_ready()

    try:
        kernels.import_numba()  # as the switch will: so it is known whether there is anything to compile
        with kernels.warm_in_background():
            run_switch(SwitchOptions(**options), ready)
    except (SwitchError, ConfigError, kernels.CompilationError) as error:
        raise click.ClickException(one_line(error)) from error


@switch.command()
@click.option("--p4runtime", type=HostPort(), default="127.0.0.1:9559", show_default=True, help="Where the switch is.")
@click.option("--port", type=click.IntRange(0, 511), help="Frames that arrive at this port only.")
@click.option("--src", metavar="IP[:PORT]", help="IPv4 frames of this sender only.")
@click.option("--dst", metavar="IP[:PORT]", help="IPv4 frames to this receiver only.")
@click.option(
    "--bytes",
    "parts",
    multiple=True,
    metavar="OFFSET=HEX[/MASK]",
    help="Frames with these bytes only, from the Ethernet header on, like 12=0806. May be repeated.",
)
@click.option("--job", metavar="NAME", help="Frames of this job of p4reduce only, in the terms of its protocol.")
@click.option("--slot", type=click.IntRange(0, 65535), help="With --job: frames of this slot of the job only.")
@click.option("--count", type=click.IntRange(1), help="End after so many frames.")
@click.option("--format", "shown", type=click.Choice(FORMATS), default="text", show_default=True, help="How to print.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --job: write a page that shows the job's next whole collective in slow motion, at all its switches.",
)
@click.option("--tls-ca", metavar="FILE", help="The switch serves TLS: the authority of its certificate.")
@click.option("--tls-certificate", metavar="FILE", help="A certificate for the switch to check.")
@click.option("--tls-key", metavar="FILE", help="The private key of that.")
def trace(**options: Any) -> None:
    """Print what frames do on a running switch, from when it says so until Ctrl-C.

    With --html the switches are those of the job, where the controller reaches them.
    """
    from p4reduce_switch.trace.client import run_trace

    run_trace(**options)


@switch.command()
def alias() -> None:
    """Let p4reduce-simple-switch be found as simple_switch_grpc too, by a link in the folder of this command.

    Refused where a simple_switch_grpc is installed.
    """
    found = shutil.which("simple_switch_grpc")
    if found is not None:
        raise click.ClickException(f"there is a simple_switch_grpc at {found}: it is left alone")
    link = Path(sysconfig.get_path("scripts")) / "simple_switch_grpc"
    command = link.with_name("p4reduce-simple-switch")
    if not command.exists():  # such as after pip install --user
        raise click.ClickException(f"there is no {command}: make the link yourself, beside p4reduce-simple-switch")
    try:
        link.symlink_to("p4reduce-simple-switch")
    except OSError as error:
        raise click.ClickException(f"cannot make {link}: {error.strerror}") from error
    click.echo(f"{link} leads to p4reduce-simple-switch; delete it when you install BMv2")
