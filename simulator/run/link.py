"""The server a run talks to: everything found out about it, in one value."""

from typing import TYPE_CHECKING

from msgspec import Struct

from windtunnel.simulator.engines.base import Adapter, Resolved

if TYPE_CHECKING:
    import aiohttp


class Link(Struct, frozen=True):
    session: "aiohttp.ClientSession"
    """For everything that is not measured."""
    root: str
    """URL without `/v1`."""
    adapter: Adapter
    resolved: Resolved
