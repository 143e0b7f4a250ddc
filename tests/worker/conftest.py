"""What the worker's tests share."""

from __future__ import annotations

from rigs.torch_threads import one_thread  # noqa: F401 (a fixture)
