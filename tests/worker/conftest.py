"""What the worker's tests share."""

from rigs.torch_threads import one_thread  # noqa: F401 (a fixture)
