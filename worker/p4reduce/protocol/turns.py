"""A lock that is granted in the order it was asked for."""

from __future__ import annotations

import threading


class Turns:
    """Collectives have to start in call order; a plain lock promises no order."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next_ticket = 0
        self._serving = 0
        self._given_up: set[int] = set()

    def __enter__(self) -> None:
        with self._changed:
            ticket = self._next_ticket
            self._next_ticket += 1
            try:
                self._changed.wait_for(lambda: self._serving == ticket)
            except BaseException:
                self._given_up.add(ticket)
                self._skip()
                raise

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._serving += 1
            self._skip()

    def _skip(self) -> None:
        while self._serving in self._given_up:
            self._given_up.remove(self._serving)
            self._serving += 1
        self._changed.notify_all()
