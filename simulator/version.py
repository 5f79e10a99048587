"""The program's own version: said here because an installed package's metadata is slow to ask for."""

VERSION = "0.1.0"
"""Equal to pyproject.toml's."""
