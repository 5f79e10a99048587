"""Which event loop the client's processes run on."""

from typing import Any


def loop_factory() -> Any:
    """That of uvloop where it is installed; None stands for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
