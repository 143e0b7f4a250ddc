"""The epoch counter: no epoch is ever given out twice, even by another run of the controller.

A job that met its own epoch number with a higher round in its slots would be dropped as stale for ever, and
the registers of the switch outlive the controller. So the counter is on disk before an epoch is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from p4reduce_contracts.jobs.errors import EpochError

LAST_EPOCH = 0xFFFF
_FILE = "epoch"


class EpochCounter:
    """Draws epochs 1, 2, ... 65535 from a file in `state_dir`; several controllers may share the folder."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / _FILE

    def draw(self) -> int:
        """A fresh epoch, on disk (fsync, atomic rename) before it is returned. Raises EpochError."""
        with self._locked():
            epoch = self._read() + 1
            if epoch > LAST_EPOCH:
                raise EpochError(
                    f"all {LAST_EPOCH} epochs are used: stop the controller, restart the switch (that clears "
                    f"its registers), delete {self.path} and start the controller again"
                )
            self._write(epoch)
        return epoch

    def raise_to(self, epoch: int) -> None:
        """Never draw `epoch` or a smaller one: a switch was found to know it. Raises EpochError."""
        with self._locked():
            if epoch > self._read():
                self._write(epoch)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the counter against other processes."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise EpochError(
                f"cannot keep the epoch counter in {self.path.parent}: {error}; set state_dir under "
                "[controller] to a folder that the controller may write"
            ) from error

    def _read(self) -> int:
        """The last epoch given out; 0 before the first."""
        try:
            text = self.path.read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            return 0
        if not text.isdecimal() or int(text) > LAST_EPOCH:
            raise EpochError(
                f"{self.path} does not hold an epoch (1 to {LAST_EPOCH}): restart the switch, delete the "
                "file and start the controller again"
            )
        return int(text)

    def _write(self, epoch: int) -> None:
        fresh = self.path.with_suffix(".new")
        with fresh.open("w", encoding="ascii") as file:
            file.write(f"{epoch}\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
