"""What the target keeps about a packet: the first slots of its state.

A packet's state is numbered in slots. The target's own come first; the program's headers follow
(`load/layout.py`). The payload is `bytes`, all others are integers.
"""

from __future__ import annotations

PAYLOAD = 0  # what the parser left of the frame
LENGTH = 1  # packet length, kept up to date by setValid/setInvalid
INGRESS_LENGTH = 2  # bytes at the start of this ingress pass: what counters and meters count
CLONE = 3  # clone session + 1, or 0
CLONE_FIELDS = 4  # field list of the clone
DIGEST = 5  # learn list, or 0
RESUBMIT = 6  # field list of the resubmit, or 0
RECIRCULATE = 7  # field list of the recirculate, or 0
EXIT = 8  # 1 after `exit`
TRUNCATE = 9  # bytes to send at most
PARSER_ERROR = 10
CHECKSUM_ERROR = 11
FIRST_FREE = 12

NO_TRUNCATION = 1 << 32
DROP_PORT = 511
MAX_PORT = 511  # ports are 9 bits wide in v1model
