"""What the fusing passes ask of the nodes of a graph after inductor has normalized it."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

Node: TypeAlias = Any  # torch.fx.Node; torch counts as untyped

_aten = torch.ops.aten


def value(node: Node) -> torch.Tensor:
    """The fake tensor that stands for a node's result."""
    return node.meta["val"]


def only_user(node: Node, target: Any = None) -> Node | None:
    """The one node that uses another, if it is one and calls `target` (None: anything)."""
    if len(node.users) != 1:
        return None
    [user] = node.users
    return user if target is None or user.target is target else None


def is_product(node: Node) -> bool:
    """Whether this is mm, or addmm of a bias of one row and without factors, of a core's type."""
    if node.target is _aten.mm.default:
        return len(node.args) == 2
    if node.target is not _aten.addmm.default or node.kwargs or len(node.args) != 3:
        return False
    bias = value(node.args[0])
    row = bias.dim() == 1 or (bias.dim() == 2 and bias.shape[0] == 1)
    return bool(row and bias.shape[-1] == value(node).shape[1])


def product_operands(node: Node) -> tuple[Node | None, Node, Node]:
    """Bias or None, rows and weight of a product."""
    if node.target is _aten.mm.default:
        return (None, *node.args)
    return tuple(node.args)


class Joined(NamedTuple):
    """A tensor that is cut along one dim and joined along another, in the order of the parts."""

    source: Node
    cut_dim: int
    result: Node
    join_dim: int


def cut_and_joined(split: Node | None, parts: int) -> Joined | None:
    """The split and cat that torch's functional collectives make around a dim other than 0."""
    if split is None or split.target is not _aten.split.Tensor or split.kwargs:
        return None
    items = list(split.users)
    if len(items) != parts or any(item.target is not operator.getitem for item in items):
        return None
    joins = {only_user(item) for item in items}
    if len(joins) != 1 or (join := joins.pop()) is None or join.target is not _aten.cat.default:
        return None
    given = join.args[0]
    if len(given) != parts or any(
        node.args != (split, number) for number, node in enumerate(given)
    ):
        return None
    source = split.args[0]
    cut_dim = split.args[2] if len(split.args) > 2 else 0
    join_dim = join.args[1] if len(join.args) > 1 else join.kwargs.get("dim", 0)
    dims = value(source).dim()
    return Joined(source, cut_dim % dims, join, join_dim % dims)


def descendants(node: Node) -> set[Node]:
    """The node and all nodes that depend on it."""
    found, rest = {node}, [node]
    while rest:
        for user in rest.pop().users:
            if user not in found:
                found.add(user)
                rest.append(user)
    return found


def add_call(
    graph: Any, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> Node:
    """A new call in a graph, with the fake value of its result."""
    node = graph.call_function(target, args, kwargs or {})
    values = torch.fx.map_arg((args, kwargs or {}), lambda given: given.meta["val"])
    mode = torch._guards.detect_fake_mode(values)
    if mode is None:
        node.meta["val"] = target(*values[0], **values[1])
    else:
        with mode:
            node.meta["val"] = target(*values[0], **values[1])
    return node


def erase_unused(nodes: Iterable[Node]) -> None:
    """Erases nodes that nothing uses, and what only they used; inputs stay."""
    rest = list(nodes)
    while rest:
        node = rest.pop()
        if node.users or node.op != "call_function" or node._erased:
            continue
        rest += node.all_input_nodes
        node.graph.erase_node(node)
