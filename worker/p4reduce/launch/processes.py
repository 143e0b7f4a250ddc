"""Which process a rank is, and whether it has ended: /proc shows those of the same machine and PID namespace.

For others each rank has a connection to rank 0 while all of them begin, which ends with its process. What is not seen:
the end of a rank before it has that connection, and of a machine, which sends nothing then.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any, Final, Self

from p4reduce.errors import JoinError
from p4reduce.launch.addresses import host_of, own_address
from p4reduce.timeouts import tries
from p4reduce_runtime.security import is_loopback

_CONNECT_S: Final = 1.0
"""Seconds that a rank waits for each thing that its connection takes; without one it goes on."""
_BYE: Final = b"."
"""The last byte of a connection whose process goes on."""


class Processes:
    """The processes of a group's ranks during one step of its making, as far as this rank sees their ends."""

    def __init__(self, store: Any, rank: int, step: str) -> None:
        """`store` has the list "all" that `meet` has left there; `step`: its name, equal on all ranks."""
        self._store, self._rank, self._key = store, rank, f"launch/processes/{step}"
        self._drawn, self._named = zip(*(each.split(" ", 1) for each in json.loads(store.get("all"))), strict=True)
        machines = {named.partition(" ")[0] for named in self._named}
        self._connects = "" in machines or len(machines) > 1
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._received: dict[socket.socket, bytes] = {}
        """What has come over each connection: first the number that the other process has drawn."""

    def __enter__(self) -> Self:
        if self._connects and self._rank:
            for _ in tries(_CONNECT_S):
                if self._store.check([self._key]):
                    self._connect(*json.loads(self._store.get(self._key)))
                    break
        elif self._connects:
            with contextlib.suppress(OSError):
                self._listener = socket.create_server(("", 0))
                self._listener.setblocking(False)
                own = ""
                with contextlib.suppress(JoinError):
                    own = own_address(os.environ, host_of(self._store))
                self._store.set(self._key, json.dumps([own, self._listener.getsockname()[1]]))
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._connects = False
            for each in self._received:
                with contextlib.suppress(OSError):
                    each.send(_BYE)
                each.close()
            if self._listener is not None:
                self._listener.close()

    def ended(self) -> list[int]:
        """Return the ranks whose processes have ended."""
        found = [rank for rank, named in enumerate(self._named) if has_ended(named)]
        with self._lock:
            if self._connects:
                if self._listener is not None:
                    self._accept(self._listener)
                found += [rank for each in [*self._received] if (rank := self._receive(each)) is not None]
        return found

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while len(self._received) < 2 * len(self._named):
                self._begin(listener.accept()[0])

    def _connect(self, address: str, port: int) -> None:
        """Connect to rank 0; another address than its own one is tried where that is on loopback."""
        known = "" if is_loopback(f"{address}:0") else address
        for host in dict.fromkeys(filter(None, (known, host_of(self._store), "127.0.0.1"))):
            with contextlib.suppress(OSError):
                self._begin(socket.create_connection((host, port), _CONNECT_S))
                return

    def _begin(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._received[connection] = b""
        connection.send(self._drawn[self._rank].encode())

    def _receive(self, connection: socket.socket) -> int | None:
        """Take what has come, and drop a connection that has ended; return the rank whose process ended with it."""
        try:
            new = connection.recv(64)
        except BlockingIOError:
            return None
        except OSError:
            new = b""
        text = self._received[connection] = self._received[connection] + new
        if new and len(text) < 64:
            return None
        del self._received[connection]
        connection.close()
        drawn = text.decode(errors="replace")
        return self._drawn.index(drawn) if drawn in self._drawn else None


def this_process() -> str:
    """Name this process: its machine and PID namespace, its PID there, and its start; "" where /proc hides others."""
    with contextlib.suppress(OSError):
        os.stat("/proc/1")
        return f"{_machine()} {os.getpid()} {_start(os.getpid())}"
    return ""


def has_ended(process: str) -> bool:
    """Return whether a named process has ended; False for one that is not seen from here."""
    if not process or not this_process():
        return False
    machine, pid, start = process.split()
    return machine == _machine() and _start(int(pid)) != start


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _start(pid: int) -> str:
    """Return when a process has started, in clock ticks since the boot; "" for one that has ended."""
    try:
        state, *others = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else others[18]
