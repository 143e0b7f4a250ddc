"""What the trials' tests have in common."""

from rigs.torch_threads import one_thread  # noqa: F401 (a fixture)
