"""The operators that ``collops bench`` measures, of which nothing else in the bench knows."""

from __future__ import annotations

import importlib

from collops.bench.operator import Operator

# name -> description.
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
    "experts": "LinearParallel with experts, and a layer of them, fused and not",
    "quantised": "products of int8 beside those of float32 and bfloat16",
    "torch": "calls of torch.distributed on collops beside gloo",
    "padding": "padded batches on gloo and collops beside uneven ones, by torch's calls",
}
# Those that have a module of their own, which defines OPERATOR; it is imported when it is measured.
_MODULES = {
    "linear_parallel": "linear_parallel",
    "experts": "experts",
    "quantised": "quantised",
    "torch": "torch_calls",
    "padding": "padding",
}


def load(name: str) -> Operator:
    """The operator of that name."""
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'collectives')}")
    own: tuple[Operator, ...] = (module.OPERATOR,) if name in _MODULES else module.COLLECTIVES
    return next(each for each in own if each.name == name)
