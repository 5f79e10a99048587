"""What pyproject.toml cannot say: a part in C, which is left out where it cannot be built (agents/reads.py)."""

from setuptools import Extension, setup

SOURCE = "agents/_reads.c"
setup(ext_modules=[Extension("windtunnel.agents._reads", [SOURCE], depends=[SOURCE], optional=True)])
