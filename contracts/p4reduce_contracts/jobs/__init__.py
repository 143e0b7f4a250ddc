"""The job service: the requests of workers and the command line, and the controller's answers."""

from __future__ import annotations

from typing import Final

from p4reduce_runtime.environment import P4REDUCE_CONTROLLER

DEFAULT_CONTROLLER: Final = P4REDUCE_CONTROLLER.default
"""HOST:PORT of the job service by default."""
