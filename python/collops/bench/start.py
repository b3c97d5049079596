"""Who starts the ranks of a benchmark: the benchmark itself, a rank table, or `collops run`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass

from collops.bench.operator import Operator
from collops.launch.environment import await_table, this_host

_TABLE_S = 300.0


@dataclass(frozen=True)
class Start:
    """How the ranks begin.

    Attributes:
        size: the number of ranks; 0: as many as a point has, all on this host.
        environments: the variables of this host's ranks, from a rank table.
        rank: this process's rank, if `collops run` has started it; else -1.
    """

    size: int = 0
    environments: tuple[Mapping[str, str], ...] = ()
    rank: int = -1

    @property
    def shows(self) -> bool:
        """Whether rank 0, which has the results, is this process or one that it starts."""
        ranks = [environment["COLLOPS_RANK"] for environment in self.environments]
        return self.size == 0 or self.rank == 0 or "0" in ranks


def start_of(operator: Operator, options: argparse.Namespace) -> Start:
    """How the ranks begin, by the options and the environment.

    Raises:
        ValueError: the environment does not say which rank this is.
        ArgumentError: the rank table is wrong, or does not have this host.
    """
    if options.rank_table:
        table = await_table(options.rank_table, _TABLE_S)
        environments = this_host(options.rank_table, table)
        return Start(len(table.ranks), tuple(environments))
    if operator.several_hosts and "COLLOPS_RANK" in os.environ:
        return Start(_number("COLLOPS_RANK_SIZE"), rank=_number("COLLOPS_RANK"))
    return Start()


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    if not text.isdecimal():
        raise ValueError(f"{name} must be a whole number, got {text!r}")
    return int(text)
