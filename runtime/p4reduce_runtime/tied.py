"""Run a Python module that ends with its parent process: `python -m p4reduce_runtime.tied MODULES ARGUMENTS...`

The last of MODULES, which commas separate, is run; the others are imported before, while the parent may prepare what
this process needs. The first line of standard input is a JSON object of files, names and texts. They are in a folder of
this process alone, whose path replaces "{folder}" in the texts and in the arguments, and which is removed at the end.
Standard input is a pipe from the parent: the kernel closes it when the parent ends, even by SIGKILL, and then this
process ends too.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

_GRACE_S: Final = 3.0
"""Seconds that the module has to end after SIGTERM."""


def main() -> None:
    """Run the module in this process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    modules, *arguments = sys.argv[1:]
    *imported, module = modules.split(",")
    os.environ.pop("NOTIFY_SOCKET", None)  # which is for the parent's readiness
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # a launcher may have bound the parent to a processor
    for name in imported:
        importlib.import_module(name)
    if not (files := sys.stdin.readline()):
        return  # the parent has ended
    folder = tempfile.mkdtemp(prefix="p4reduce-")
    try:
        for name, text in json.loads(files).items():
            with os.fdopen(os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text.replace("{folder}", folder))
        threading.Thread(target=_end_with_parent, args=(folder,), name="p4reduce-tied", daemon=True).start()
        sys.argv = [module, *(argument.replace("{folder}", folder) for argument in arguments)]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the parent may end now, too
        shutil.rmtree(folder, ignore_errors=True)


def _end_with_parent(folder: str) -> None:
    sys.stdin.buffer.read()  # of bytes: no text is an error, which would end this thread
    shutil.rmtree(folder, ignore_errors=True)  # first: the module may have left SIGTERM to the system
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main()
