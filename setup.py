"""What pyproject.toml cannot say: parts in C, left out where they cannot be built.

See agents/reads.py and simulator/emulator/loops.py.
"""

from setuptools import Extension, setup

SOURCES = ("agents/_reads.c", "simulator/emulator/_loops.c")


def module(source: str) -> Extension:
    name = "windtunnel." + source.removesuffix(".c").replace("/", ".")
    return Extension(name, [source], depends=[source], optional=True)


setup(ext_modules=[module(source) for source in SOURCES])
