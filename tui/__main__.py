"""`python -m windtunnel.tui RUN_DIR`: the viewer as a process of its own."""

import sys

from windtunnel.tui.start import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
