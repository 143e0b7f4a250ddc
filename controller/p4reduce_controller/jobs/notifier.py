"""Wakes the coroutines of one event loop that wait for the registry to change."""

from __future__ import annotations

import asyncio


class Notifier:
    """`notify` wakes all coroutines that are in `wait`. Check the condition, then `wait`, and check again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiting coroutines."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        await self._event.wait()
