"""Finds products followed by reduce_scatter in a graph, and makes each one fused operator of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from collops.torch.async_tp.graph_nodes import (
    Node,
    add_call,
    cut_and_joined,
    erase_unused,
    is_product,
    only_user,
    product_operands,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Collection

_aten = torch.ops.aten
_c10d = torch.ops._c10d_functional
_VIEWS = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)


class Scattered(NamedTuple):
    """A product of a graph that is reduced and scattered.

    Attributes:
        product: mm or addmm.
        view: what gives it more dims, or None.
        dim: the dim along which it is scattered.
        ends: the nodes whose users take the result.
        reduce_op: "sum" or "avg".
        group_name: the group.
    """

    product: Node
    view: Node | None
    dim: int
    ends: list[Node]
    reduce_op: str
    group_name: str


def fuse_scattered_products(graph: Any, group_names: Collection[str]) -> int:
    """Fuses every reduce_scatter of these groups with its product; returns how many."""
    found = [
        scattered
        for node in graph.nodes
        if node.target is _c10d.reduce_scatter_tensor.default
        and (scattered := _scattered(node, group_names)) is not None
    ]
    for scattered in found:
        _fuse(graph, scattered)
    return len(found)


def _scattered(node: Node, group_names: Collection[str]) -> Scattered | None:
    given, reduce_op, ranks, group_name = node.args
    waits = [user for user in node.users if user.target is _c10d.wait_tensor.default]
    # A result that is kept for the backward pass is an output, too, beside its wait_tensor.
    others = [user for user in node.users if user not in waits and user.op != "output"]
    if group_name not in group_names or reduce_op not in ("sum", "avg") or len(waits) != 1:
        return None
    whole, dim = _scattered_whole(given, ranks)
    view = whole if whole.target in _VIEWS else None
    product = view.args[0] if view is not None else whole
    if others or not is_product(product) or not _alone(whole, product):
        return None
    shape, rows = value(whole).shape, value(product)
    if view is not None and (len(shape) < 2 or shape[-1] != rows.shape[-1]):
        return None
    bias, x, weight = product_operands(product)
    if value(weight).dtype != value(x).dtype or (bias is not None and dim == len(shape) - 1):
        return None
    return Scattered(product, view, dim, [node, *waits], reduce_op, group_name)


def _scattered_whole(given: Node, ranks: int) -> tuple[Node, int]:
    """What is scattered, and along which dim."""
    if given.target is _aten.cat.default and len(given.users) == 1:
        split = given.args[0][0].args[0]
        joined = cut_and_joined(split if isinstance(split, type(given)) else None, ranks)
        if joined is not None and joined.result is given and joined.join_dim == 0:
            return joined.source, joined.cut_dim
    return given, 0


def _alone(whole: Node, product: Node) -> bool:
    """Whether nothing else uses the product: the fused operator does not return it."""
    return only_user(whole) is not None and (whole is product or only_user(product) is whole)


def _fuse(graph: Any, scattered: Scattered) -> None:
    bias, x, weight = product_operands(scattered.product)
    with graph.inserting_before(scattered.ends[0]):
        rows = x if scattered.view is None else _with_dims(graph, x, scattered.view)
        out = add_call(
            graph,
            torch.ops.symm_mem.fused_matmul_reduce_scatter.default,
            (rows, weight, scattered.reduce_op, scattered.dim, scattered.group_name),
        )
        if bias is not None:
            # Every rank adds its own bias to its product: their reduction is a row of its own.
            args = bias, scattered.reduce_op, scattered.group_name
            reduced = add_call(graph, _c10d.all_reduce.default, args)
            reduced = add_call(graph, _c10d.wait_tensor.default, (reduced,))
            out = add_call(graph, _aten.add.Tensor, (out, reduced))
    for end in scattered.ends:
        end.replace_all_uses_with(out, lambda user: user not in scattered.ends)
    erase_unused(reversed(scattered.ends))


def _with_dims(graph: Any, x: Node, view: Node) -> Node:
    """The rows of a product with the leading dims of its result."""
    lead, columns = view.args[1][:-1], value(x).shape[-1]
    shape = (*value(view).shape[:-1], columns)
    source = x.args[0] if x.target in _VIEWS else None
    if source is not None and value(source).shape == shape:
        return source
    last = columns if isinstance(columns, int) else -1
    return add_call(graph, _aten.reshape.default, (x, [*lead, last]))
