"""The target's own slots of a packet: the first ones.

A packet is a payload and an array of slots, which are integers. The target's own come first; the program's headers
follow (`load/layout.py`).
"""

from __future__ import annotations

LENGTH = 0  # packet length, which setValid and setInvalid adjust
INGRESS_LENGTH = 1  # packet length at the start of this ingress pass, which counters and meters use
CLONE = 2  # clone session + 1, or 0
CLONE_FIELDS = 3  # field list of the clone
DIGEST = 4  # learn list, or 0
RESUBMIT = 5  # field list of the resubmit, or 0
RECIRCULATE = 6  # field list of the recirculate, or 0
EXIT = 7  # 1 after `exit`
TRUNCATE = 8  # maximum number of bytes to send
PARSER_ERROR = 9
CHECKSUM_ERROR = 10
FIRST_FREE = 11

NO_TRUNCATION = 1 << 32
MAX_PORT = 511  # ports are 9 bits wide in v1model
