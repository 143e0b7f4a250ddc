"""How long a test waits at most."""

from typing import Final

LIMIT_S: Final = 600.0
"""For what comes by itself. Only a fault reaches it: a machine with much else to do takes many times what an idle one
does."""
