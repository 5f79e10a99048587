"""Where `windtunnel` begins: loading the command line takes a moment, and Ctrl-C may come in it.

Nothing else of windtunnel is loaded before an interrupt is caught.
"""

import contextlib
import gc
import os
import sys

COLLECT_AFTER = 20_000
"""New objects between two looks for garbage: loading makes tens of thousands, all of which stay."""


def main() -> None:
    """The command line (`windtunnel.simulator.cli`); an interrupt while it is being loaded ends with exit code 130."""
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    try:
        from windtunnel.simulator.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            os.write(2, b"windtunnel: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
