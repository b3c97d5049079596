"""Finds all_gather followed by products in a graph, and makes each one fused operator of it."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from collops.torch.async_tp.graph_nodes import (
    Node,
    add_call,
    cut_and_joined,
    descendants,
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


class Gathered(NamedTuple):
    """An all_gather of a graph.

    Attributes:
        shard: this rank's rows.
        whole: the result, after wait_tensor and what gathers along another dim.
        dim: the dim along which it is gathered.
        group_name: the group.
        sizes: nodes that ask for a size of the result before it is waited for.
        ranks: of the group.
    """

    shard: Node
    whole: Node
    dim: int
    group_name: str
    sizes: list[Node]
    ranks: int


def fuse_gathered_products(graph: Any, group_names: Collection[str]) -> int:
    """Fuses every all_gather of these groups with its products; returns how many."""
    found = [
        gathered
        for node in graph.nodes
        if node.target is _c10d.all_gather_into_tensor.default
        and (gathered := _gathered(node, group_names)) is not None
    ]
    return sum(_fuse(graph, gathered) for gathered in found)


def _gathered(node: Node, group_names: Collection[str]) -> Gathered | None:
    shard, ranks, group_name = node.args
    waits = [user for user in node.users if user.target is _c10d.wait_tensor.default]
    sizes = [user for user in node.users if user.target is _aten.sym_size.int]
    if group_name not in group_names or len(waits) != 1 or value(shard).dim() < 2:
        return None
    if len(node.users) != 1 + len(sizes):
        return None
    [wait] = waits
    joined = cut_and_joined(only_user(wait), ranks)
    whole, dim = wait, 0
    if joined is not None and joined.cut_dim == 0 and joined.source is wait:
        whole, dim = joined.result, joined.join_dim % value(shard).dim()
    # Along the last dim a product needs all of it: nothing to gain.
    if dim == value(shard).dim() - 1:
        return None
    return Gathered(shard, whole, dim, group_name, [size for size in sizes if size.users], ranks)


def _products(gathered: Gathered) -> list[Node]:
    """The products of the gathered rows whose weights do not depend on them."""
    whole = gathered.whole
    rows = [whole] if value(whole).dim() == 2 else []
    rows += [
        user
        for user in whole.users
        if user.target in _VIEWS and _keeps_last_dim(value(user), value(whole))
    ]
    later = descendants(whole)
    found = []
    for matrix in rows:
        for user in matrix.users:
            if is_product(user):
                _, x, weight = product_operands(user)
                if x is matrix and weight not in later and value(weight).dtype == value(x).dtype:
                    found.append(user)
    return found


def _keeps_last_dim(view: torch.Tensor, whole: torch.Tensor) -> bool:
    return bool(view.dim() == 2 and view.shape[1] == whole.shape[-1])


def _fuse(graph: Any, gathered: Gathered) -> int:
    products = _products(gathered)
    if not products:
        return 0
    whole = gathered.whole
    operands = [product_operands(product) for product in products]
    kept = _has_other_users(whole, products)
    with graph.inserting_before(products[0]):
        weights = [weight for _, _, weight in operands]
        fused = add_call(
            graph,
            torch.ops.symm_mem.fused_all_gather_matmul.default,
            (gathered.shard, weights, gathered.dim, gathered.group_name),
            {"return_A": kept},
        )
        results = add_call(graph, operator.getitem, (fused, 1))
        for number, (product, (bias, matrix, _)) in enumerate(zip(products, operands, strict=True)):
            out = add_call(graph, operator.getitem, (results, number))
            if matrix is not whole:
                # Rows in the order of the gathered tensor, as the product had them.
                out = add_call(graph, _aten.reshape.default, (out, _sizes(matrix, out)))
            elif gathered.dim:
                out = add_call(graph, _aten.clone.default, (out,), _CONTIGUOUS)
            if bias is not None:
                out = add_call(graph, _aten.add.Tensor, (out, bias))
            product.replace_all_uses_with(out)
        if kept:
            rows = add_call(graph, operator.getitem, (fused, 0))
            if gathered.dim:
                rows = add_call(graph, _aten.clone.default, (rows,), _CONTIGUOUS)
            whole.replace_all_uses_with(rows)
    _say_sizes(graph, gathered)
    erase_unused([*products, *(matrix for _, matrix, _ in operands), whole])
    return 1


def _say_sizes(graph: Any, gathered: Gathered) -> None:
    """Takes the sizes of the gathered tensor from those of the shard."""
    for node in gathered.sizes:
        dim = node.args[1]
        with graph.inserting_before(node):
            size = add_call(graph, _aten.sym_size.int, (gathered.shard, dim))
            if dim == 0:
                size = add_call(graph, operator.mul, (size, gathered.ranks))
        node.replace_all_uses_with(size)
        erase_unused([node])


_CONTIGUOUS = {"memory_format": torch.contiguous_format}


def _sizes(matrix: Node, out: Node) -> list[Any]:
    """The sizes of the product: rows as the graph says them, columns of the result."""
    columns = value(out).shape[-1]
    return [matrix.args[1][0], columns if isinstance(columns, int) else -1]


def _has_other_users(whole: Node, products: list[Node]) -> bool:
    views = [user for user in whole.users if user.target in _VIEWS]
    direct = [user for user in whole.users if user not in views]
    inner = [user for view in views for user in view.users]
    return any(user not in products for user in direct + inner)
