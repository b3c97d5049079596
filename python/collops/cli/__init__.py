"""The command line: ``collops <command>``."""

from collops.cli.main import main

__all__ = ["main"]
