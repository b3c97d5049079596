"""Known faults of products with leaves: of the leaves, and of the tree that adds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from ...data.dtypes import Array, name_of, rounded, widened
from ...data.leaves import cut_evenly, leaf_product, subtrees, tree_sum
from ..output_layout import Fault
from .faults import Tensors
from .groups import LinearParallel, leaf_borders, place
from .quantised import Product, Single
from .reference import output_dtype, parts_of, reduced

LEAVES, ROUNDING = "wrong leaves", "rounding"
# The faults of single leaves add up all leaves for each of them: a call of more leaves has none.
_MOST = 64

# What every rank adds to the sum, in this order.
Parts = list[list[Single]]


def leaf_faults(call: LinearParallel, tensors: Tensors) -> Iterator[Fault]:
    """Yield the faults of a call with leaves; none of one without.

    Example:
        >>> x, call = np.array([[1, 2, 4, 8]], np.float32), LinearParallel(3, 1, sum_leaves=2)
        >>> found = {one.text: one for one in leaf_faults(call, Tensors([x], [x]))}
        >>> found["leaf 1 is missing"].outputs()[0].tolist()
        [[5.0]]
    """
    if not call.sum_leaves or call.has_experts:
        return
    own, members = _Leaves(call, tensors), place(call, 0).reduced
    in_order = replace(call, sum_leaves=0, sum_columns=())

    def fault(text: str, make: Callable[[], Parts], how: LinearParallel = call) -> Fault:
        return Fault(LEAVES, text, partial(_outputs, how, tensors, make))

    whole = partial(own.parts, lambda k, leaves: [0, k])
    if len(members) > 1:
        yield fault("the products of whole ranks were added, in rank order", whole, in_order)
        text = "each rank added its own leaves by a tree, then the ranks were added in rank order"
        yield fault(text, own.sums, in_order)
    elif call.sum_leaves > 1:
        yield fault("there were no leaves: the product is one sum of all columns", whole)
    yield fault("the leaves were added one after the other", lambda: own.right, in_order)
    cuts: dict[str, Callable[[int, int], list[int]]] = {
        "the longer ones came last": _longer_last,
        "all but the last were as long as the longest": _longest_first,
    }
    for text, cut in cuts.items():
        if own.are_cut_otherwise(cut):
            yield fault(f"leaves were cut at wrong columns: {text}", partial(own.parts, cut))
    dtype = output_dtype(call, name_of(tensors.xs[0]))
    roundings: dict[str, Callable[[], Parts]] = {}
    if dtype != "float32":
        roundings[f"each leaf was rounded to {dtype}, then their sum"] = partial(own.rounded, dtype)
        text = f"the sum of each rank was rounded to {dtype}, then the sum of all"
        roundings[text] = partial(own.rounded_roots, dtype)
    if tensors.xs[0].dtype != np.int8:
        text = "each product was rounded to float32, then added to those of its leaf (no fma)"
        roundings[text] = partial(own.parts, leaf=_without_fma)
    for text, make in roundings.items():
        yield Fault(ROUNDING, text, partial(_outputs, call, tensors, make))
    everyone = len(members) == call.rank_size
    for index in range(len(members) if len(members) > 1 else 0):
        who = f"rank {index}" if everyone else f"member {index} of each group"
        yield fault(f"all leaves of {who} are missing", partial(own.times, 0, member=index))
    for leaf in range(call.sum_leaves if call.sum_leaves <= _MOST else 0):
        yield fault(f"leaf {leaf} is missing", partial(own.times, 0, leaf=leaf))
        yield fault(f"leaf {leaf} was added twice", partial(own.times, 2, leaf=leaf))


class _Leaves:
    """The leaves of a call, which are multiplied when the first fault asks for them."""

    def __init__(self, call: LinearParallel, tensors: Tensors) -> None:
        self._call, self._tensors = call, tensors
        self._places = [place(call, rank) for rank in range(call.rank_size)]
        columns = [[tensors.xs[q].shape[-1] for q in own.reduced] for own in self._places]
        self._borders = [leaf_borders(call, rank, own) for rank, own in enumerate(columns)]

    @cached_property
    def right(self) -> Parts:
        """The leaves of every rank."""
        return self.parts()

    def parts(
        self, cut: Callable[[int, int], list[int]] | None = None, leaf: Product = leaf_product
    ) -> Parts:
        """Return leaves that are cut or multiplied otherwise; `cut` takes columns and leaves."""
        own = (self._tensors.xs, self._tensors.weights, self._tensors.scales)
        return [
            parts_of(
                self._call,
                rank,
                *own,
                cut=borders if cut is None else cut(borders[-1], len(borders) - 1),
                leaf=leaf,
            )
            for rank, borders in enumerate(self._borders)
        ]

    def are_cut_otherwise(self, cut: Callable[[int, int], list[int]]) -> bool:
        return any(cut(own[-1], len(own) - 1) != own for own in self._borders if len(own) > 1)

    def sums(self) -> Parts:
        return [[tree_sum(own)] for own in self.right]

    def rounded(self, dtype: str) -> Parts:
        return [[_narrowed(leaf, dtype) for leaf in own] for own in self.right]

    def rounded_roots(self, dtype: str) -> Parts:
        """Return in place of the first leaf of each subtree its rounded sum."""
        found = []
        for rank, own in enumerate(self.right):
            first = self._first(rank)
            parts = []
            for begin, end in subtrees(self._call.sum_leaves, first, first + len(own)):
                total = tree_sum(own[begin - first : end - first])
                parts += [_narrowed(total, dtype), *[_nothing(total)] * (end - begin - 1)]
            found.append(parts)
        return found

    def times(self, times: int, *, leaf: int = -1, member: int = -1) -> Parts:
        """Return a leaf, or all those of a member of each group, so many times."""
        found = []
        for rank, own in enumerate(self.right):
            first, is_member = self._first(rank), self._places[rank].rs_index == member
            found.append(
                [
                    (part * np.float32(times) if times else _nothing(part))
                    if is_member or first + at == leaf
                    else part
                    for at, part in enumerate(own)
                ]
            )
        return found

    def _first(self, rank: int) -> int:
        """Return the number of a rank's first leaf."""
        own = self._places[rank]
        return sum(len(self._borders[q]) - 1 for q in own.reduced[: own.rs_index])


def _outputs(call: LinearParallel, tensors: Tensors, make: Callable[[], Parts]) -> list[Array]:
    return [first for first, *_ in reduced(call, make(), tensors.xs, tensors.residuals)]


def _narrowed(total: Single, dtype: str) -> Single:
    return widened(rounded(total, dtype), dtype)


def _nothing(like: Single) -> Single:
    """Return what changes no sum, not even one of -0."""
    return np.full_like(like, -0.0)


def _longer_last(columns: int, leaves: int) -> list[int]:
    return [columns - border for border in reversed(cut_evenly(columns, leaves))]


def _longest_first(columns: int, leaves: int) -> list[int]:
    return [min(i * -(-columns // leaves), columns) for i in range(leaves + 1)]


def _without_fma(left: Single, right: Single) -> Single:
    total = np.zeros((left.shape[0], right.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for i in range(left.shape[1]):
            total += left[:, i : i + 1] * right[i]
    return total
