"""Products beside gathers and scatters in a graph: how they are found and become one call."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple, TypeAlias

import torch

from collops.torch.private import fake_mode_of

_aten = torch.ops.aten
_c10d = torch.ops._c10d_functional
_VIEWS = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)
_CONTIGUOUS = {"memory_format": torch.contiguous_format}


class FusedPatterns(NamedTuple):
    """The fused patterns of the graphs that were compiled since the last reset.

    Attributes:
        all_gather_matmul: all_gather with one or several products.
        matmul_reduce_scatter: a product with reduce_scatter.
    """

    all_gather_matmul: int = 0
    matmul_reduce_scatter: int = 0


_counts = [FusedPatterns()]


def count(found: FusedPatterns) -> None:
    """Adds what one graph had."""
    _counts[0] = FusedPatterns(*map(sum, zip(_counts[0], found, strict=True)))


def fused_patterns(*, reset: bool = False) -> FusedPatterns:
    """Returns how many patterns were fused in this process since the last reset.

    ``counts = sum over the graphs that were compiled``; graphs that inductor takes from its cache
    are fused, but not counted. The logger ``collops.torch.async_tp.graph_pass`` logs the counts of
    each graph at level INFO.

    Args:
        reset: whether to count from 0 afterwards.

    Returns:
        The counts of both patterns.

    Source of the semantics: collops.

    Example:
        >>> import collops.torch
        >>> collops.torch.fused_patterns(reset=True) is not None
        True
        >>> collops.torch.fused_patterns()
        FusedPatterns(all_gather_matmul=0, matmul_reduce_scatter=0)
    """
    counts = _counts[0]
    if reset:
        _counts[0] = FusedPatterns()
    return counts


Node: TypeAlias = Any  # torch.fx.Node; torch counts as untyped


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
    mode = fake_mode_of(values)
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
    return sum(_fuse_gathered(graph, gathered) for gathered in found)


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


def _fuse_gathered(graph: Any, gathered: Gathered) -> int:
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


def _sizes(matrix: Node, out: Node) -> list[Any]:
    """The sizes of the product: rows as the graph says them, columns of the result."""
    columns = value(out).shape[-1]
    return [matrix.args[1][0], columns if isinstance(columns, int) else -1]


def _has_other_users(whole: Node, products: list[Node]) -> bool:
    views = [user for user in whole.users if user.target in _VIEWS]
    direct = [user for user in whole.users if user not in views]
    inner = [user for view in views for user in view.users]
    return any(user not in products for user in direct + inner)


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
        _fuse_scattered(graph, scattered)
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


def _fuse_scattered(graph: Any, scattered: Scattered) -> None:
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
    # Without sizes the ranks tell each other; the fused operator takes a list.
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
