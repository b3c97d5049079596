"""One order of the operators on all ranks, also in compiled code.

torch.compile drops calls without a use, and inductor moves those that do not depend on each other.
It does so by sizes, which differ from rank to rank. So no call is dropped, and inductor ties each
call to the one before, whatever its group.

Not used are torch's effects (_register_effectful_op), which thread a token through a
graph: in torch 2.13 they fail where an operator is computed again in the backward pass
(torch.utils.checkpoint), and inductor notes what an operator waits for by the name of its buffer,
but looks for it by that of the operation.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from collops.torch.operators.definitions import BACKWARD_SCHEMAS, SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Private in 2.13, as is all of inductor that is used here.
_INDUCTOR = "torch._inductor.lowering"
# The name of the last call's result, in each graph of inductor: its member effectful_ops is for
# objects of torch.
_LAST = "collops_last_call"
_lowered = False


def keep_order() -> None:
    """Marks the operators, so that graphs keep their calls."""
    for operator in _operators():
        torch.fx.has_side_effect(operator)


def keep_order_in_inductor() -> None:
    """Ties the operators to each other in inductor, once that is imported.

    Fakes call this: before inductor makes code of an operator it asks for the shape of its result.
    """
    global _lowered
    if _lowered or _INDUCTOR not in sys.modules:
        return
    _lowered = True
    from torch._inductor.fx_passes import post_grad

    post_grad.reorder_for_locality = partial(_unless_ours, post_grad.reorder_for_locality)
    lowering = sys.modules[_INDUCTOR]
    for operator in _operators():
        if operator not in lowering.lowerings:
            lowering.make_fallback(operator, warn=False)
        lowering.lowerings[operator] = partial(_tied, lowering.lowerings[operator])


def _operators() -> Iterator[Any]:
    for name in (*SCHEMAS, *BACKWARD_SCHEMAS):
        packet = getattr(torch.ops.collops, name)
        for overload in packet.overloads():
            yield getattr(packet, overload)


def _unless_ours(reorder: Callable[[Any], None], graph: Any) -> None:
    """Inductor's pass that puts calls before their first use, for graphs without the operators."""
    operators = {*_operators()}
    if not any(node.op == "call_function" and node.target in operators for node in graph.nodes):
        reorder(graph)


def _tied(lower: Callable[..., Any], *args: Any, **words: Any) -> Any:
    from torch._inductor.virtualized import V

    graph = V.graph
    before = len(graph.operations)
    result = lower(*args, **words)
    last = getattr(graph, _LAST, None)
    for operation in graph.operations[before:]:
        operation.has_side_effects = lambda: True  # so that it is not dropped
        if last is not None:
            graph.additional_buffer_deps[operation.get_operation_name()].add(last)
    setattr(graph, _LAST, graph.operations[-1].get_name())
    return result
