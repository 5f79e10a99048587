"""Keys one after the other, however fast they come: each is done before the next one is looked at.

Textual hands the keys of a burst to the screen at once, and what a binding does waits until its key has come back up to
the program: a letter behind it comes first. Of `ab`, erase, `c` the wrong letter would go, and what is typed behind the
key that opens a box would be taken by the screen below the box.
"""

import time
from collections import deque
from typing import TypeVar

from textual import events
from textual.app import App
from textual.dom import DOMNode

Result = TypeVar("Result")
Input = events.Key | events.Paste
PATIENCE_S = 0.5
"""After that long a key counts as done: whom it was sent to may be no more."""


class InTurn(App[Result]):
    """Holds back what is typed while a key is under way."""

    held: deque[Input] | None = None
    sent_at: float | None = None
    """When the key that is under way set out, s."""

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, Input) or event.is_forwarded:
            await super().on_event(event)
            return
        self.held = self.held or deque()
        self.held.append(event)
        if self.sent_at is None or time.monotonic() - self.sent_at >= PATIENCE_S:
            await self.send_next()

    async def send_next(self) -> None:
        """The first key that is held back, if any."""
        self.sent_at = None
        if not self.held:
            return
        key, self.sent_at = self.held.popleft(), time.monotonic()
        goes_to: DOMNode = self.focused or self.screen
        await super().on_event(key)
        self.follow(goes_to)

    def follow(self, node: DOMNode) -> None:
        """A key comes up from where it was sent, through the messages of each one above; this goes behind it."""
        while node is not self:
            above = node.parent or self
            if node.call_later(self.follow, above):
                return
            node = above
        self.call_later(self.settle_key)

    async def settle_key(self) -> None:
        """What the key has set going (a focus, a screen that comes or goes, a command) is done before the next one."""
        if self._peek_message() is not None:
            self.call_later(self.settle_key)
        else:
            await self.send_next()
