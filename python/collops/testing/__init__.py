"""Runs a function on several ranks of this host, for tests, examples and notebooks."""

from collops.testing.errors import RankDiedError, RankEndedError, RankErrors
from collops.testing.marks import ranks
from collops.testing.run import run_ranks

__all__ = ["RankDiedError", "RankEndedError", "RankErrors", "ranks", "run_ranks"]
