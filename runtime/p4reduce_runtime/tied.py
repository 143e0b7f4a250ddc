"""Run a Python module that ends with its parent process: `python -m p4reduce_runtime.tied MODULES ARGUMENTS...`

The last of MODULES, which commas separate, is run; the others are imported before, while the parent may prepare what
this process needs. The first line of standard input is a JSON object of files, names and texts. They are in this
process's memory, so nothing is left of them; "{NAME}" stands for a file's path in the arguments and in later texts.
Where the parent ends, even by SIGKILL, the kernel ends this process, even a stopped one: once the thread that started
it has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import signal
import sys
import tempfile
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_MOST_PROCESSORS: Final = 8192


def main() -> None:
    """Run the module in this process."""
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL)):
        sys.exit("this system lets no process end with its parent (prctl, PR_SET_PDEATHSIG)")
    modules, *arguments = sys.argv[1:]
    *imported, module = modules.split(",")
    os.environ.pop("NOTIFY_SOCKET", None)  # which is for the parent's readiness
    with contextlib.suppress(OSError):  # seccomp may forbid it
        # a launcher may have bound the parent to a processor; the kernel takes those that there are for this process
        os.sched_setaffinity(0, range(_MOST_PROCESSORS))
    for name in imported:
        importlib.import_module(name)
    if not (files := sys.stdin.readline()):
        return  # the parent has ended
    paths: dict[str, str] = {}
    for name, text in json.loads(files).items():
        paths[f"{{{name}}}"] = f"/proc/self/fd/{open_in_memory(_filled(text, paths))}"
    sys.argv = [module, *(_filled(argument, paths) for argument in arguments)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def open_in_memory(text: str) -> int:
    """Return the descriptor of a file that holds `text` and has no name; on a disk only where memory has no files."""
    try:
        descriptor = os.memfd_create("p4reduce")
    except OSError:  # seccomp may forbid it
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.write(descriptor, text.encode())
    return descriptor


def _filled(text: str, paths: dict[str, str]) -> str:
    for name, path in paths.items():
        text = text.replace(name, path)
    return text


if __name__ == "__main__":
    main()
