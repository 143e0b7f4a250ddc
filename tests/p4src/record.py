"""Run the cases of the project's program on BMv2 and write down its answers: `--help` has the options."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

from conformance import record  # noqa: E402
from rigs.recorded.cases import cases  # noqa: E402

if __name__ == "__main__":
    sys.exit(record.main(made=cases()))
