"""Operator, the one record of each of ``torch.ops.collops``, and how a record is registered.

``torch.ops.collops.NAME`` has an overload ``out``, which writes the result into `out`. A call
without gradients goes straight to the communicator: torch's register_autograd makes a second pass
through the dispatcher in every call, of 64 bytes the longest part. The functions of collops.torch
leave out the first pass too, by operate(), where it would do nothing: it takes some 10 us.

All ranks run the operators in one order, also in compiled code. torch.compile drops calls without a
use, and inductor moves those that do not depend on each other, by sizes, which differ from rank to
rank. So no call is dropped, and inductor ties each call to the one before, whatever its group. Not
used are torch's effects (_register_effectful_op), which thread a token through a graph: in torch
2.13 they fail where an operator is computed again in the backward pass (torch.utils.checkpoint),
and inductor notes what an operator waits for by the name of its buffer, but looks for it by that of
the operation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from operator import index
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import is_grad_enabled
from torch import library as torch_library
from torch.compiler import is_compiling

from collops.collectives.communicator import Communicator
from collops.errors import Error, ErrorCode, raise_status
from collops.torch import private
from collops.torch.calls import refuse
from collops.torch.graph_breaks import break_graphs
from collops.torch.group import Group
from collops.torch.operators.names import check_no_gradients, communicator_of
from collops.torch.private import (
    AutoDispatchBelowAutograd,
    DispatchKey,
    after_autograd,
    after_views,
    any_requires_grad,
    dispatch_modes,
    func_transforms,
    function_modes,
    is_functional,
    jit_trace,
    profiles,
)

# Library.define and impl: the decorator custom_op makes a call several times as long.
_library = torch_library.Library("collops", "DEF")
_CPU = DispatchKey.CPU
# The last is that of torch_npu's tensors.
_KEYS = ("CPU", "CUDA", "PrivateUse1")
# The name of the last call's result, in each graph of inductor: its member effectful_ops is for
# objects of torch.
_LAST = "collops_last_call"
_lowered = False
_overloads: list[Any] = []
_calls: dict[str, Callable[..., Any]] = {}
_group_at: dict[str, int] = {}  # the place of the group's name among an operator's arguments
_TENSORS = torch.Tensor, torch.nn.Parameter
_GROUPS = Group, Communicator


class Operator(NamedTuple):
    """An operator.

    Attributes:
        schema: its arguments before the group's name.
        call: what it runs on CPU, GPU and NPU tensors: the communicator's call.
        fake: its result without data, which torch.compile and torch.export trace.
        save: keeps what the gradients need, from the inputs, in a context of autograd; of several
            results these follow the inputs.
        backward: the gradients of the inputs, the group's name included, from those of the results.
        options: arguments behind the group's name, which have defaults; a call may leave them out.
        has_out: whether it has the overload `out`.
        results: their types.
    """

    schema: str
    call: Callable[..., Any]
    fake: Callable[..., Any]
    save: Callable[[Any, Any], None]
    backward: Callable[..., Any]
    options: str = ""
    has_out: bool = True
    results: str = "Tensor"


def register(name: str, operator: Operator) -> None:
    """Makes an operator known to torch, with the gradients of its inputs."""
    _calls[name] = operator.call
    break_graphs(operator.call)  # where torch.compile has broken its graph before an operator
    arguments = f"{operator.schema}, str group_name{operator.options and ', '}{operator.options}"
    schema = f"({arguments}) -> {operator.results}"
    _define(name, schema, operator.call, operator.fake)
    if operator.has_out:
        # It returns nothing: torch.compile takes no operator that returns an argument.
        schema = f"({arguments}, *, Tensor(a!) out) -> ()"
        _define(f"{name}.out", schema, partial(_into, operator.call), _nothing)
    packet = getattr(torch.ops.collops, name)
    names = [argument.name for argument in packet.default._schema.arguments]
    _group_at[name] = names.index("group_name")
    function = _with_gradient(name, packet.default, operator)

    @break_graphs
    def run(keyset: Any, *args: Any) -> Any:
        if is_grad_enabled() and any_requires_grad(*args):
            return function.apply(*args, keyset)
        if (keyset & after_views).highestPriorityTypeId() == _CPU:
            return operator.call(*args)
        return _below(packet.default, keyset, args)

    _library.impl(name, run, "Autograd", with_keyset=True)
    for overload in packet.overloads():
        _overloads.append(getattr(packet, overload))
        torch.fx.has_side_effect(_overloads[-1])


def operate(name: str, *args: Any, out: torch.Tensor | None = None) -> Any:
    """Runs an operator: by its call alone where torch's dispatcher would do no more than that.

    An argument of another type is told in our words, and to the ranks that wait in the call.
    """
    if is_compiling():
        return _through_torch(name, args, out)
    try:
        if not _is_seen_by_none(args):
            return _through_torch(name, args, out)
        if out is None:
            return _calls[name](*args)
        _calls[name](*args, out=out)
        return out
    except Error:
        raise
    except (AttributeError, RuntimeError, TypeError):
        _refuse_wrong_types(name, args, out)
        raise


def _through_torch(name: str, args: Any, out: torch.Tensor | None) -> Any:
    packet = getattr(torch.ops.collops, name)
    if out is None:
        return packet(*args)
    group = None if name == "matmul" else args[_group_at[name]]  # for whose ranks none wait
    check_no_gradients(name, group, *(x for x in args if isinstance(x, torch.Tensor)))
    packet.out(*args, out=out)
    return out


def _refuse_wrong_types(name: str, args: Any, out: Any) -> None:
    """Refuses an argument that is not of its type in the schema; does nothing if all are."""
    arguments = getattr(torch.ops.collops, name).default._schema.arguments
    given = [(one.name, str(one.type), value) for one, value in zip(arguments, args, strict=False)]
    for label, kind, value in [*given, ("out", "Optional[Tensor]", out)]:
        if needed := _needed(kind, value):
            hint = f": pass torch.from_numpy({label})" if isinstance(value, np.ndarray) else ""
            shown = type(value).__name__ if "ensor" in needed else repr(value)
            message = f"{name}: {label} must be {needed}, got {shown}{hint}"
            if name == "matmul":
                raise_status(ErrorCode.ERROR_INVALID_PARAM, message)
            group = communicator_of(args[_group_at[name]])
            refuse(group, name, ErrorCode.ERROR_INVALID_PARAM, message)


def _needed(kind: str, value: Any) -> str:
    """What an argument of a schema's type must be; "" if it is."""
    if kind.startswith("Optional["):
        return "" if value is None else _needed(kind[len("Optional[") : -1], value)
    if kind == "Tensor":
        return "" if isinstance(value, torch.Tensor) else "a torch.Tensor"
    try:
        if kind == "List[int]":
            [index(number) for number in value]
        elif kind == "int":
            index(value)
    except TypeError:
        return "a list of whole numbers" if kind == "List[int]" else "a whole number"
    return ""


def direct_group(x: Any, group: Any) -> Any:
    """Who makes a call with x, if that is all that it is; else None, as torch.compile traces."""
    if is_compiling():
        return None
    found = dist.group.WORLD if group is None else group
    goes = (
        type(found) in _GROUPS
        and type(x) in _TENSORS
        and x.is_cpu
        and not (x.requires_grad and is_grad_enabled())
        and not is_functional(x)
        and not _something_sees()
    )
    return found if goes else None


def _something_sees() -> bool:
    """Whether something notes the operators that this thread calls."""
    return bool(
        dispatch_modes()
        or function_modes()
        or func_transforms()
        or profiles()
        or jit_trace() is not None
    )


def _is_seen_by_none(args: Any) -> bool:
    """Whether the tensors are plain ones, no gradient is needed, and nothing notes operators."""
    if type(args[0]) not in _TENSORS:
        return False
    if _something_sees():
        return False
    for x in args:
        if isinstance(x, torch.Tensor) and not (
            type(x) in _TENSORS and x.is_cpu and not is_functional(x)
        ):
            return False
    return not (is_grad_enabled() and any_requires_grad(*args))


def _define(name: str, schema: str, call: Callable[..., Any], fake: Callable[..., Any]) -> None:
    _library.define(name + schema)
    for key in _KEYS:
        _library.impl(name, call, key)
    torch_library.register_fake(f"collops::{name}", partial(_traced, fake), lib=_library)


@break_graphs
def _into(call: Callable[..., Any], *args: Any, out: torch.Tensor) -> None:
    call(*args, out=out)


def _nothing(*args: Any, out: torch.Tensor) -> None:
    """The overloads with `out` return nothing."""


def _traced(fake: Callable[..., Any], *args: Any, **words: Any) -> Any:
    # Before inductor makes code of an operator it asks for the shape of its result.
    _keep_order_in_inductor()
    return fake(*args, **words)


def _below(overload: Any, keyset: Any, args: Any) -> Any:
    with AutoDispatchBelowAutograd():
        return overload.redispatch(keyset & after_autograd, *args)


def _with_gradient(name: str, overload: Any, operator: Operator) -> Any:
    def run_forward(ctx: Any, *args_and_keyset: Any) -> Any:
        *args, keyset = args_and_keyset
        result = _below(overload, keyset, args)
        operator.save(ctx, [*args, *result] if isinstance(result, tuple) else args)
        return result

    @break_graphs
    def run_backward(ctx: Any, *gradients: Any) -> Any:
        return *operator.backward(ctx, *gradients), None  # the set of keys is an input, too

    methods = {"forward": staticmethod(run_forward), "backward": staticmethod(run_backward)}
    return type(f"{name}_with_gradient", (torch.autograd.Function,), methods)


def _keep_order_in_inductor() -> None:
    """Ties the operators to each other in inductor, once that is imported."""
    global _lowered
    if _lowered or private.INDUCTOR_LOWERING not in sys.modules:
        return
    _lowered = True
    post_grad = private.inductor_after_gradients()
    post_grad.reorder_for_locality = partial(_unless_ours, post_grad.reorder_for_locality)
    lowering = sys.modules[private.INDUCTOR_LOWERING]
    for overload in _overloads:
        if overload not in lowering.lowerings:
            lowering.make_fallback(overload, warn=False)
        lowering.lowerings[overload] = partial(_tied, lowering.lowerings[overload])


def _unless_ours(reorder: Callable[[Any], None], graph: Any) -> None:
    """Inductor's pass that puts calls before their first use, for graphs without the operators."""
    ours = {*_overloads}
    if not any(node.op == "call_function" and node.target in ours for node in graph.nodes):
        reorder(graph)


def _tied(lower: Callable[..., Any], *args: Any, **words: Any) -> Any:
    graph = private.inductor_graph()
    before = len(graph.operations)
    result = lower(*args, **words)
    last = getattr(graph, _LAST, None)
    for operation in graph.operations[before:]:
        operation.has_side_effects = lambda: True  # so that it is not dropped
        if last is None:
            continue
        if hasattr(graph, "additional_buffer_deps"):
            graph.additional_buffer_deps[operation.get_operation_name()].add(last)
        else:  # torch 2.9
            operation.get_read_writes = partial(_after, last, operation.get_read_writes)
    setattr(graph, _LAST, graph.operations[-1].get_name())
    return result


def _after(last: str, reads_and_writes: Callable[[], Any]) -> Any:
    return reads_and_writes().with_read(private.inductor_read(last))
