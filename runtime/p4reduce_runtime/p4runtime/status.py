"""Where an RPC's details travel, and the words by which a client recognises two refusals. They are BMv2's words."""

from __future__ import annotations

from typing import Final

DETAILS: Final = "grpc-status-details-bin"
"""The key of the trailing metadata with a google.rpc.Status: one p4.v1.Error for each update of a batch."""
NO_PIPELINE: Final = "No forwarding pipeline config set for this device"
ELECTION_ID_USED: Final = "Election id already exists"
