"""Which event loop the client's processes run on, and how seldom they look for garbage."""

from typing import Any

COLLECT = (20_000, 10, 10)
"""`gc.set_threshold` during a run. Chunks that wait to be parsed are thousands of tuples and no garbage: looking
through them every 700 took a twentieth of the CPU.
"""


def loop_factory() -> Any:
    """That of uvloop where it is installed; None stands for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
