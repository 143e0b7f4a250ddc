"""The job service: what workers and the command line ask of a controller, and what it answers."""

from __future__ import annotations

from typing import Final

DEFAULT_CONTROLLER: Final = "127.0.0.1:9600"
"""HOST:PORT of the job service where nothing else is said."""
