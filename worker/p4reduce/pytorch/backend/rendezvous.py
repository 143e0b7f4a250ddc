"""How the ranks of a process group find each other in a store, and how they part.

A store may have the keys of groups that were made before under the same prefix: by the same processes, or by others
that have ended, of which one rank alone may have been started again. So rank 0 draws a name for each group, the others
answer it with a number drawn for this call, and rank 0's list of these numbers tells them that it is theirs. With each
number is the process, for the others to see whether it has ended.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

from p4reduce.launch.addresses import underlying
from p4reduce.launch.processes import this_process
from p4reduce.timeouts import tries

_c10d: Any = dist  # whose stubs do not have its stores
_NAME: Final = "name"
_ABSENT: Final = "-"
"""No key has this value: `compare_set(key, x, x)` returns x where the key is missing, and writes nothing."""
_PART_S: Final = 2.0


def meet(store: Any, rank: int, size: int, timeout_s: float) -> str:
    """Return a name that all ranks of this group have from this call, and no group had before.

    Raises DistBackendError, which names the missing ranks, after `timeout_s`.
    """
    if rank:
        return _answer(store, rank, timeout_s)
    name = secrets.token_hex(8)
    store.set(_NAME, name)
    answers = [f"{name}/{other}" for other in range(1, size)]
    for _ in tries(timeout_s):
        if not answers or store.check(answers):
            break
    else:
        ranks = ", ".join(str(other) for other, key in enumerate(answers, 1) if not store.check([key]))
        text = f"timed out after {timeout_s:g} s: rank {ranks} did not make the process group that rank 0 makes"
        raise dist.DistBackendError(text)
    store.set(f"{name}/all", json.dumps([_drawn(), *(store.get(key).decode() for key in answers)]))
    return name


def _answer(store: Any, rank: int, timeout_s: float) -> str:
    mine, answered = _drawn(), ""
    for _ in tries(timeout_s):
        if not (name := _read(store, _NAME)):
            continue
        if name != answered:
            if answered:  # that of a group before
                store.delete_key(f"{answered}/{rank}")
            store.set(f"{name}/{rank}", mine)
            answered = name
        if mine in json.loads(_read(store, f"{name}/all") or "[]"):
            return name
    text = f"timed out after {timeout_s:g} s: not all of the other ranks made the process group that rank {rank} makes"
    raise dist.DistBackendError(text)


def _read(store: Any, key: str) -> str:
    """Return the value of a key, "" without it. `get` would wait for one that rank 0 removes (`part`) after a check.

    No rank may wait for the key: in torch 2.13 that would wake it.
    """
    value: str = store.compare_set(key, _ABSENT, _ABSENT).decode()
    return "" if value == _ABSENT else value


def _drawn() -> str:
    """Return a number drawn for this call, and which process makes it."""
    return f"{secrets.token_hex(8)} {this_process()}"


class Watched(_c10d.Store):  # type: ignore[misc]
    """A store for gloo's ranks to meet in, whose waits end with the error that `look` raises."""

    def __init__(self, store: Any, look: Callable[[], None]) -> None:
        super().__init__()
        self.go_on(store, look)

    def go_on(self, store: Any, look: Callable[[], None]) -> Watched:
        """Have another store and another `look` from now on; return this one."""
        self.underlying_store = self._store = store  # as PrefixStore has it: gloo's address follows from a TCPStore's
        self._look = look
        return self

    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(key, value)

    def check(self, keys: list[str]) -> bool:
        return bool(self._store.check(keys))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return bytes(self._store.compare_set(key, expected, desired))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return bytes(self._store.get(key))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        limit_s = (timeout or self._store.timeout).total_seconds()
        for _ in tries(limit_s):
            if self._store.check(keys):
                return
            self._look()
        raise dist.DistStoreError(f"timed out after {limit_s:g} s")


def part(store: Any, rank: int, size: int, *, ends: bool = False) -> None:
    """Return on the other ranks once rank 0 has called it: rank 0 removes the job, and may have the store's server.

    Else the others could begin to make the next group while rank 0's store of this one is still there. Rank 0 returns
    once the others use the store no more: torch prints a stack trace where a store ends during a call. A rank that does
    not call it is waited for 2 s, as `Communicator.close` waits; else rank 0 removes the group's keys.

    `ends`: whether the server of the store ends with rank 0's group. The others then return once it has: at the same
    address they would meet it again.
    """
    others = range(1, size)
    # RuntimeError: the store has gone with its process
    with suppress(RuntimeError), _end_of_server(store if rank and ends else None):
        if rank:
            store.set(f"waits/{rank}", "")
            _await(store, ["parted"])
            store.set(f"left/{rank}", "")
        else:
            _await(store, [f"waits/{other}" for other in others])
            store.set("parted", "")
            if _await(store, [f"left/{other}" for other in others]) and not ends:
                _remove_keys(store)


def leave(store: Any, size: int) -> None:
    """End the use of a subgroup's store on this rank; the last one that calls it removes the group's keys."""
    with suppress(RuntimeError):
        if store.add("left", 1) == size:
            _remove_keys(store)


def _remove_keys(store: Any) -> None:
    for key in store.list_keys() if hasattr(store, "list_keys") else ():  # torch has it from 2.10 on
        store.delete_key(key)


@contextmanager
def _end_of_server(store: Any) -> Iterator[None]:
    """Wait after the block until the server of a TCPStore has ended, for 2 s at most; it gets a connection before."""
    store = underlying(store)
    if not isinstance(store, _c10d.TCPStore):
        yield
        return
    try:
        server = socket.create_connection((store.host, store.port), _PART_S)
    except OSError:  # it has ended
        yield
        return
    with server, suppress(OSError):
        yield
        server.recv(1)  # nothing is sent, so nothing comes until it ends


def _await(store: Any, keys: list[str]) -> bool:
    return any(not keys or store.check(keys) for _ in tries(_PART_S))
