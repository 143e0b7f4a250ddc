"""One rank of torch's own tests of torch.distributed (`DistributedTest._DistTestBase`, in the wheel) over a backend.

    RANK=... WORLD_SIZE=... torch_suite.py BACKEND FOLDER [TEST ...]

The tests that torch runs over gloo are run, all in this process, each with a process group of its own. FOLDER gets
outcome.RANK: a line a test, {"test": ..., "outcome": "ok" | "skipped" | "ERROR: ..."}.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import unittest
from datetime import timedelta
from pathlib import Path

TIMEOUT = timedelta(seconds=40)
"""The timeout of each collective: after an error on one rank the others wait as long."""

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
backend, folder = sys.argv[1], Path(sys.argv[2])
for name in ("barrier", "test_dir", "init_dir"):
    (folder / name).mkdir(parents=True, exist_ok=True)
os.environ.update(BACKEND="gloo", TEMP_DIR=str(folder), MASTER_ADDR="127.0.0.1")

import torch.distributed as dist  # noqa: E402
from torch.testing._internal import common_utils  # noqa: E402
from torch.testing._internal.common_distributed import TEST_SKIPS  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

AS_GLOO = "test_accumulate_gradients_no_sync"
"""Tests that take the name gloo for a model on the CPU. Decorators have seen gloo too; other tests see the backend."""
SKIPS = {skip.exit_code for skip in TEST_SKIPS.values()}
store = dist.FileStore(str(folder / "store"), size)
store.set_timeout(timedelta(seconds=120))
barriers = 0


def barrier(*_arguments: object, **_keywords: object) -> None:
    """Wait for all ranks, in the place of a barrier by files with 10 s."""
    global barriers
    barriers += 1
    store.set(f"barrier {barriers} {rank}", "")
    store.wait([f"barrier {barriers} {each}" for each in range(size)])


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    _barrier = staticmethod(barrier)

    def join_or_run(self, test: object) -> object:
        return test


distributed_test.Barrier.sync = barrier


def outcome_of(name: str) -> str:
    test = Suite(name)
    distributed_test.BACKEND = "gloo" if name.startswith(AS_GLOO) else backend
    test.rank, test.file_name = rank, str(folder / f"init_dir/{name}")
    common_utils.set_rng_seed()
    try:
        getattr(test, name)()
    except unittest.SkipTest:
        return "skipped"
    except SystemExit as ended:
        return "skipped" if ended.code in SKIPS else f"ERROR: exit {ended.code}"
    except BaseException:
        return f"ERROR: {traceback.format_exc()[-1500:]}"
    return "ok"


def main() -> None:
    tests = sys.argv[3:] or [name for name in dir(Suite) if name.startswith("test_")]
    with (folder / f"outcome.{rank}").open("a", buffering=1) as said:
        for at, name in enumerate(tests):
            barrier()
            dist.init_process_group(
                backend,
                init_method=f"file://{folder}/init_dir/{backend} {at} {name}",
                rank=rank,
                world_size=size,
                timeout=TIMEOUT,
            )
            outcome = outcome_of(name)
            said.write(json.dumps({"test": name, "outcome": outcome}) + "\n")
            barrier()
            if dist.is_initialized():
                dist.destroy_process_group()


main()
