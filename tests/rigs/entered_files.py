"""Run a program and write which of the repository's files it enters, in order.

    python entered_files.py OUT p4reduce ARGUMENT ...     a command
    python entered_files.py OUT SCRIPT ARGUMENT ...       a script

A line for each change from one file to another in a thread: CLOCK_MONOTONIC in ns, which all processes share, and the
path. Compiled kernels are not seen.
"""

from __future__ import annotations

import inspect
import runpy
import sys
import threading
import time
from pathlib import Path
from types import FrameType

ROOT = f"{Path(__file__).parents[2]}/"
FUNCTION = inspect.CO_OPTIMIZED
"""Code that has it is a function's, and not a module's or a class's body."""


def main() -> None:
    path, program, *arguments = sys.argv[1:]
    last = threading.local()
    own = __file__
    with open(path, "w", buffering=1, encoding="utf-8") as out:

        def note(frame: FrameType, event: str, _: object) -> None:
            code = frame.f_code
            file = code.co_filename
            if event != "call" or not file.startswith(ROOT) or not code.co_flags & FUNCTION or file == own:
                return
            if "/.venv/" not in file and getattr(last, "file", None) != file:
                last.file = file
                out.write(f"{time.monotonic_ns()} {file.removeprefix(ROOT)}\n")

        threading.setprofile(note)
        sys.argv = [program, *arguments]
        sys.setprofile(note)
        try:
            if program == "p4reduce":
                runpy.run_module("p4reduce_contracts", run_name="__main__")
            else:
                runpy.run_path(program, run_name="__main__")
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


main()
