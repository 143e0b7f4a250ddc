"""The job service: the requests of workers and the command line, and the controller's answers."""

from __future__ import annotations

from typing import Final

DEFAULT_CONTROLLER: Final = "127.0.0.1:9600"
"""HOST:PORT of the job service by default."""
