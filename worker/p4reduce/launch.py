"""Which launch of a job this process belongs to."""

from __future__ import annotations

from collections.abc import Mapping


def run_id(environment: Mapping[str, str]) -> str:
    """Return an id that all ranks of one launch share and no other launch has; "" if the environment has none.

    torchrun's own run id is "none" unless it was given one, so its rendezvous, which two launches on one machine cannot
    share, is part of this; and so is how often torchrun has restarted the workers.
    """
    run = environment.get("TORCHELASTIC_RUN_ID")
    if not run:
        return ""
    where = f"{environment.get('MASTER_ADDR', '')}:{environment.get('MASTER_PORT', '')}"
    return f"{run}@{where} restart {environment.get('TORCHELASTIC_RESTART_COUNT', '0')}"
