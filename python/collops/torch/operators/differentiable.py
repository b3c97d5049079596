"""Registers gradients so that a call without them goes straight to the communicator.

torch's register_autograd does the same with a second pass through the dispatcher in every
call, with gradients or without: of a call of 64 bytes it would be the longest part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

# Private in 2.13, but what every kernel in Python below autograd uses, torch's own included.
from torch._C import _after_ADInplaceOrView_keyset as _after_views
from torch._C import _after_autograd_keyset as _after_autograd
from torch._C import _any_requires_grad, _AutoDispatchBelowAutograd, is_grad_enabled

from collops.torch.graph_breaks import break_graphs
from collops.torch.operators.definitions import BACKWARD_CALLS, CALLS, library

if TYPE_CHECKING:
    from collections.abc import Callable

_CPU = torch._C.DispatchKey.CPU


def register(
    name: str, backward: Callable[..., Any], save: Callable[[Any, Any, Any], None]
) -> None:
    """Registers the gradient of an operator.

    Args:
        name: the operator's name.
        backward: as of torch's register_autograd.
        save: its `setup_context`, by position.
    """
    operator = getattr(torch.ops.collops, name).default
    function = _function(name, operator, backward, save)
    call = CALLS.get(name) or BACKWARD_CALLS[name]

    @break_graphs
    def run(keyset: Any, *args: Any) -> Any:
        if is_grad_enabled() and _any_requires_grad(*args):
            return function.apply(*args, keyset)
        if (keyset & _after_views).highestPriorityTypeId() == _CPU:
            return call(*args)
        return _below(operator, keyset, args)

    library.impl(name, run, "Autograd", with_keyset=True)


def _below(operator: Any, keyset: Any, args: Any) -> Any:
    with _AutoDispatchBelowAutograd():
        return operator.redispatch(keyset & _after_autograd, *args)


def _function(
    name: str, operator: Any, backward: Callable[..., Any], save: Callable[[Any, Any, Any], None]
) -> Any:
    def run_forward(ctx: Any, *args_and_keyset: Any) -> Any:
        *args, keyset = args_and_keyset
        result = _below(operator, keyset, args)
        save(ctx, args, result)
        return result

    @break_graphs
    def run_backward(ctx: Any, gradient: Any) -> Any:
        return *backward(ctx, gradient), None  # the set of keys is an input, too

    methods = {"forward": staticmethod(run_forward), "backward": staticmethod(run_backward)}
    return type(f"{name}_with_gradient", (torch.autograd.Function,), methods)
