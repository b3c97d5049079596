"""Runs a function on several ranks of this host, for tests, examples and notebooks."""

from collops.testing.marks import ranks
from collops.testing.run import RankDiedError, RankEndedError, RankErrors, run_ranks

__all__ = ["RankDiedError", "RankEndedError", "RankErrors", "ranks", "run_ranks"]
