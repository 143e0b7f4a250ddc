"""The last step of every teardown: end and delete whatever a testbed left, even one that was killed.

Everything a testbed makes carries its mark: processes in their environment, links in their alias, named network
namespaces in their name. The guardian of its processes (p4reduce_lab.guardian) runs this module and sweeps up all that
bears the mark.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path

from p4reduce_lab.guardian import end_processes, stand_guard

MODULE = "p4reduce_testbed.sweep"
NAMESPACES = Path("/run/netns")
_COMMAND_S = 20.0


def alias(mark: str) -> str:
    """Return what links of the testbed have as alias."""
    return f"p4reduce-testbed {mark}"


def namespace(mark: str, host: str) -> str:
    """Return the name of a host's network namespace, where it has one."""
    return f"p4r-{mark}-{host}"


def sweep(mark: str) -> None:
    """End and delete everything that bears the mark."""
    end_processes(mark)
    for name in links(mark):
        _ip("link", "delete", name)
    for name in _namespaces(mark):
        _ip("netns", "delete", name)


def links(mark: str) -> list[str]:
    """Return the names of the links on this machine that bear the mark."""
    with contextlib.suppress(ValueError):  # not JSON: `ip` failed
        found = json.loads(_ip("-json", "link"))
        return [link["ifname"] for link in found if link.get("ifalias") == alias(mark)]
    return []


def _namespaces(mark: str) -> list[str]:
    return [path.name for path in NAMESPACES.glob(namespace(mark, "*"))] if NAMESPACES.is_dir() else []


def _ip(*arguments: str) -> str:
    """Return what `ip` printed; nothing if it failed."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["ip", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False).stdout
    return ""


if __name__ == "__main__":
    stand_guard(sweep)
