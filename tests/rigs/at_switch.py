"""Run a script as a rank of torchrun that sends to its own one of several switches.

at_switch.py SWITCH,SWITCH,... SCRIPT ARGUMENT ...      the switches by rank
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path


def main() -> None:
    switches, script, *arguments = sys.argv[1:]
    os.environ["P4REDUCE_SWITCH"] = switches.split(",")[int(os.environ["RANK"])]
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)  # as when the script itself is started
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
