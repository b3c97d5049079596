"""Fuses collops' operators of uneven shares: all_gatherv + product, product + reduce_scatterv.

They are finished when they return, so no wait_tensor stands between; the fused operators take the
bias, and round once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from collops.torch.async_tp.graph_nodes import (
    Node,
    add_call,
    erase_unused,
    is_product,
    only_user,
    product_operands,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Collection

_GATHER, _SCATTER = "collops.all_gatherv.default", "collops.reduce_scatterv.default"
_TYPES = (torch.float32, torch.bfloat16, torch.float16)


def fuse_uneven_gathers(graph: Any, group_names: Collection[str]) -> int:
    """Fuses every all_gatherv of these groups whose one user is a product; returns how many."""
    found = [node for node in graph.nodes if str(node.target) == _GATHER]
    return sum(_fuse_gather(graph, node, group_names) for node in found)


def fuse_uneven_scatters(graph: Any, group_names: Collection[str]) -> int:
    """Fuses every reduce_scatterv of these groups with its product; returns how many."""
    found = [node for node in graph.nodes if str(node.target) == _SCATTER]
    return sum(_fuse_scatter(graph, node, group_names) for node in found)


def _fuse_gather(graph: Any, node: Node, group_names: Collection[str]) -> bool:
    shard, sizes, dim, group_name = node.args
    product = only_user(node)
    if group_name not in group_names or product is None or dim != 0 or not _multiplies(product):
        return False
    bias, x, weight = product_operands(product)
    # Without sizes the ranks tell each other; the fused operator would take equal ones.
    if x is not node or weight is node or sizes is None:
        return False
    target = torch.ops.collops.all_gather_matmul.default
    stored, turned = _stored(weight)
    with graph.inserting_before(product):
        out = add_call(graph, target, (shard, stored, bias, sizes, turned, group_name))
    product.replace_all_uses_with(out)
    erase_unused([product])
    return True


def _fuse_scatter(graph: Any, node: Node, group_names: Collection[str]) -> bool:
    product, sizes, dim, reduce_op, group_name = node.args
    if group_name not in group_names or dim != 0 or reduce_op not in ("sum", "avg"):
        return False
    alone = only_user(product) is node
    if not alone or not _multiplies(product):
        return False
    bias, x, weight = product_operands(product)
    if bias is not None:
        return False
    target = torch.ops.collops.matmul_reduce_scatter.default
    stored, turned = _stored(weight)
    args = x, stored, None, reduce_op, sizes, turned, group_name
    with graph.inserting_before(node):
        out = add_call(graph, target, args)
    node.replace_all_uses_with(out)
    erase_unused([node])
    return True


def _multiplies(node: Node) -> bool:
    """Whether a node is a product that the core makes."""
    if not is_product(node):
        return False
    _, x, weight = product_operands(node)
    return value(x).dtype in _TYPES and value(weight).dtype == value(x).dtype


def _stored(weight: Node) -> tuple[Node, bool]:
    """The weight before a transposition, and whether there was one."""
    if weight.target is torch.ops.aten.permute.default and list(weight.args[1]) == [1, 0]:
        return weight.args[0], True
    return weight, False
