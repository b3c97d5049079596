"""The operators that ``collops bench`` measures: a module or a folder for each, and a row here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collops.bench.operator import Operator

# name -> description. The module of that name in this folder has OPERATOR.
OPERATORS = {
    "all_gather_v": "AllGatherV on one host or several, against MPI, gloo and the link alone",
    "reduce_scatter_v": "ReduceScatterV on one host or several, against the same",
    "linear_parallel": "LinearParallel against its parts, its pipeline, and torch with MPI or gloo",
}


def load(name: str) -> Operator:
    """The operator of that name, whose module is imported now."""
    operator: Operator = importlib.import_module(f"{__name__}.{name}").OPERATOR
    return operator
