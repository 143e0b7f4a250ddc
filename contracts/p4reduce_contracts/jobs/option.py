"""The option --controller: where the job service is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from p4reduce_contracts.jobs import DEFAULT_CONTROLLER
from p4reduce_runtime.environment import P4REDUCE_CONTROLLER
from p4reduce_runtime.terminal import HostPort

controller_option: Callable[[Any], Any] = click.option(
    "--controller",
    "address",
    type=HostPort(),
    envvar=P4REDUCE_CONTROLLER.name,
    show_envvar=True,
    default=DEFAULT_CONTROLLER,
    show_default=True,
    help="Where the controller's job service is.",
)
