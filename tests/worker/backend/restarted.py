"""A rank of one of two agents of torchrun, of which one fails once, after which their counts of restarts differ.

The ranks name the store's host differently, as those of Kubeflow's PyTorchJob do. Argument: a file that is made when
the rank fails. Prints the counts.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

failed = Path(sys.argv[1])
is_restarted = failed.exists()
if os.environ["RANK"] == "1":
    os.environ["MASTER_ADDR"] = "localhost"
dist.init_process_group("p4reduce", timeout=timedelta(seconds=60))
mine = torch.full((1000,), float(dist.get_rank()) + 1)
dist.all_reduce(mine)
assert mine.unique().tolist() == [3]
if not is_restarted:
    dist.barrier()
    if dist.get_rank() == 0:
        failed.touch()
        os._exit(1)
    time.sleep(600)  # its agent ends it when the other one begins again
counts = [""] * 2
dist.all_gather_object(counts, os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.destroy_process_group()
print("restarts:", *sorted(counts), flush=True)
