"""The operators that ``collops bench`` measures: a module or a folder for each, and a row here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collops.bench.operator import Operator

# name -> description. The module of that name in this folder has OPERATOR.
OPERATORS = {
    "all_gather": "AllGather by size: time, bandwidth, and the limit of its copies",
    "all_gather_v": "AllGatherV, also of uneven blocks",
    "all_reduce": "AllReduce",
    "all_to_all": "AllToAll",
    "all_to_all_v": "AllToAllV, also of uneven parts",
    "barrier": "Barrier",
    "broadcast": "Broadcast",
    "reduce_scatter": "ReduceScatter",
    "reduce_scatter_v": "ReduceScatterV, also of uneven slices",
    "send_recv": "Send and Recv, every rank to the next one",
    "linear_parallel": "LinearParallel, its parts, its pipeline, and torch with MPI or gloo",
}


def load(name: str) -> Operator:
    """The operator of that name, whose module is imported now."""
    operator: Operator = importlib.import_module(f"{__name__}.{name}").OPERATOR
    return operator
