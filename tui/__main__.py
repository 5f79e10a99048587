"""`python -m windtunnel.tui RUN_DIR`: the viewer as a process of its own."""

import sys

SILENT = frozenset({"--svg", "--list", "--web", "-h", "--help"})
STARTING = "opening the screen ..."
"""Said before everything is loaded, and erased when the screen comes."""


def begin(words: list[str]) -> bool:
    """Tells a person at a terminal at once that something will come; whether it was told."""
    if not sys.stderr.isatty() or SILENT.intersection(word.partition("=")[0] for word in words):
        return False
    print(STARTING, end="", file=sys.stderr, flush=True)
    return True


if __name__ == "__main__":
    told = begin(sys.argv[1:])
    from windtunnel.tui.start import main

    if told:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    sys.exit(main(sys.argv[1:]))
