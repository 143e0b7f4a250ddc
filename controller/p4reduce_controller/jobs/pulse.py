"""A wake-up call for everybody on one asyncio loop who waits for the registry to change."""

from __future__ import annotations

import asyncio


class Pulse:
    """`fire` wakes all that are in `wait` now. Check your condition, then `wait`, and check again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Wake everybody."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self) -> None:
        """Sleep until the next `fire`."""
        await self._event.wait()
