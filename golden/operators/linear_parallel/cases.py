"""The cases of LinearParallel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from ...data.leaves import cut_evenly
from ...data.shares import shares
from ..case import Case
from .groups import (
    ALL_GATHER,
    ALL_GATHER_REDUCE_SCATTER,
    ALL_REDUCE,
    PURE,
    REDUCE_SCATTER,
    LinearParallel,
    place,
)
from .quantised_cases import expert_cases, quantised_cases, quantised_leaves
from .reference import output_block

DTYPES = ("float16", "bfloat16", "float32")
_TYPES = {
    ALL_REDUCE: "all_reduce",
    REDUCE_SCATTER: "reduce_scatter",
    ALL_GATHER: "all_gather",
    PURE: "pure",
    ALL_GATHER_REDUCE_SCATTER: "both",
}


def linear_parallel_cases(size: int) -> Iterator[Case]:
    """Yield types, groups, dtypes, rows and shapes, each in full, for a number of ranks.

    Names begin with exact if the outputs are compared bit for bit, with random if
    `linear_parallel_bounds` bounds their errors, with quantised, experts, or leaves.

    Example:
        >>> [case.name for case in linear_parallel_cases(2)][:2]
        ['exact-all_reduce-float16', 'random-all_reduce-float16']
    """
    for number, kind in enumerate(_TYPES):
        for at, dtype in enumerate(DTYPES):
            call = _call(kind, size, trans_weight=(number + at) % 2 == 0)
            rows = (3 + 2 * at) * size
            yield _case(f"exact-{_TYPES[kind]}-{dtype}", call, rows, 17 + 16 * at, 21, dtype)
            yield _case(f"random-{_TYPES[kind]}-{dtype}", call, rows, 130, 33, dtype, data="random")
    yield from _groups(size)
    yield from _uneven(size)
    yield from _shapes(size)
    yield from quantised_cases({kind: _call(kind, size) for kind in _TYPES}, _TYPES, _quantised)
    yield from expert_cases(size)
    yield from leaves_cases(size)


def _groups(size: int) -> Iterator[Case]:
    """Yield every pair of agDim and rsDim, both ways round, even and uneven."""
    pairs = [(a, size // a) for a in range(1, size + 1) if size % a == 0]
    for at, (ag, rs) in enumerate(pairs):
        for inner in (True, False):
            call = _call(ALL_GATHER_REDUCE_SCATTER, size, ag, rs, inner_dim_is_ag=inner)
            name = f"groups-{ag}x{rs}-{'ag' if inner else 'rs'}_inner"
            dtype = DTYPES[(at + inner) % 3]
            yield _case(f"exact-{name}", call, 2 * rs, 19, 10, dtype)
            yield _case(f"random-{name}", call, 2 * rs, 70, 10, DTYPES[at % 3], data="random")
            call = replace(call, has_residual=True, trans_weight=not inner)
            for share in ("3:5", "zeros", "one_owner"):
                yield _uneven_case(f"exact-{name}-{share.replace(':', '-')}", call, share, dtype)


def _uneven(size: int) -> Iterator[Case]:
    """Yield types 1 and 2 with lists of rows, and no rows at all."""
    for at, share in enumerate(("3:5", "1:2:3:4", "zeros", "primes", "one_owner")):
        word, dtype = share.replace(":", "-"), DTYPES[at % 3]
        scatter = _call(REDUCE_SCATTER, size, has_residual=at % 2 == 0, trans_weight=at > 2)
        yield _uneven_case(f"exact-scatter_rows-{word}", scatter, share, dtype)
        gather = _call(ALL_GATHER, size, keep_intermediate=at % 2 == 0, trans_weight=at < 2)
        yield _uneven_case(f"exact-gather_rows-{word}", gather, share, dtype)
    for kind in (REDUCE_SCATTER, ALL_GATHER, ALL_GATHER_REDUCE_SCATTER):
        none = _call(kind, size, keep_intermediate=kind == ALL_GATHER)
        yield _uneven_case(f"exact-no_rows-{_TYPES[kind]}", none, "none", "float16")


def _shapes(size: int) -> Iterator[Case]:
    """Yield three dims, residuals, the gathered x, single rows and columns, and large ones."""
    for kind in _TYPES:
        call = _call(kind, size, has_residual=True, keep_intermediate=kind == ALL_GATHER)
        word = _TYPES[kind]
        yield _case(f"exact-batches-{word}", call, size, 12, 9, "float32", batch=3)
        yield _case(f"exact-wide-{word}", call, size, 600, 65, "bfloat16")
        yield _case(
            f"random-long-{word}",
            replace(call, trans_weight=False),
            size,
            1030,
            40,
            "float16",
            data="random",
        )
        yield _case(f"exact-one_column-{word}", call, 5 * size, 1, 1, "float16")
    single = replace(_call(REDUCE_SCATTER, size), has_residual=True)
    yield _case("exact-one_batch", single, 1, 12, 9, "float32", batch=2 * size)
    yield _case("exact-one_row", _call(ALL_REDUCE, size), 1, 40, 257, "float16")
    yield _case("exact-many_rows", _call(ALL_REDUCE, size), 261, 5, 6, "bfloat16")


def leaves_cases(size: int) -> Iterator[Case]:
    """Yield products with leaves: types, dtypes, cuts of k and of rows, and quantised ones.

    All are compared bit for bit. Without sumColumns the leaves are cut among the ranks as
    np.array_split does, and all are equally long.

    Example:
        >>> [case.name for case in leaves_cases(2)][:2]
        ['leaves-all_reduce-float16', 'leaves-uneven_k-all_reduce-float16']
    """
    calls = {
        kind: replace(_call(kind, size), has_residual=kind % 2 == 0, sum_leaves=8)
        for kind in _TYPES
    }
    for kind, call in calls.items():
        word = _TYPES[kind]
        for at, dtype in enumerate(DTYPES):
            call = replace(call, sum_leaves=(8, 13, 5)[at], trans_weight=(kind + at) % 2 == 0)
            even = _case(
                f"leaves-{word}-{dtype}", call, (3 + at) * size, 1, 21, dtype, data="random"
            )
            yield _with_leaves(even, (9, 3, 8)[at])
            call = replace(call, sum_leaves=(11, 8, 16)[at])
            even = replace(even, name=f"leaves-uneven_k-{word}-{dtype}", linear=call)
            yield _with_leaves(even, k=(101, 67, 150)[at])
        yield _with_leaves(_case(f"leaves-whole-{word}", call, size, 1, 9, "bfloat16"), 4)
        if kind not in (ALL_REDUCE, PURE):
            for share in ("3:5", "zeros"):
                name = f"leaves-{word}-{share.replace(':', '-')}"
                uneven = _uneven_case(name, calls[kind], share, "float32")
                yield _with_leaves(replace(uneven, kind="random"), k=45)
    total, pure = calls[ALL_REDUCE], calls[PURE]
    for leaves, k in ((size, 50), (64, 64), (7, 1030)):
        name = f"leaves-{leaves}_of_{k}"
        call = replace(total, sum_leaves=leaves)
        yield _with_leaves(_case(name, call, 3, 1, 19, "float32", data="random"), k=k)
    one_row = _case("leaves-one_row", total, 1, 1, 257, "float32", data="random")
    yield _with_leaves(one_row, 5)
    yield _with_leaves(_case("leaves-wide", pure, 5, 1, 600, "bfloat16", data="random"), k=62)
    batches = _case(
        "leaves-batches", calls[REDUCE_SCATTER], size, 1, 9, "float32", batch=3, data="random"
    )
    yield _with_leaves(batches, 6)
    for name, call, rows, dtype, data in quantised_leaves(calls, _TYPES):
        plain = _case(name, call, rows, 1, 13, dtype, data=data)
        yield _with_leaves(plain, k=100 + size) if "uneven_k" in name else _with_leaves(plain, 9)


def _with_leaves(case: Case, length: int = 0, *, k: int = 0) -> Case:
    """Return a case whose leaves have `length` columns each, or are those of k columns.

    The latter are cut unevenly among the ranks, the last of which has most.
    """
    call = case.linear
    assert call is not None
    groups = [place(call, rank) for rank in range(call.rank_size)]
    members = len(groups[0].reduced)
    call = replace(call, sum_leaves=max(call.sum_leaves, members))
    held = cut_evenly(call.sum_leaves, members)
    borders = [leaf * length for leaf in range(call.sum_leaves + 1)]
    if k:
        held = [max(i, call.sum_leaves * i**2 // members**2) for i in range(members + 1)]
        borders = cut_evenly(k, call.sum_leaves)
    columns = tuple(borders[b] - borders[a] for a, b in pairwise(held))
    if k and members > 1:
        call = replace(call, sum_columns=(columns,) * call.rank_size)
    own = (columns[p.rs_index] for p in groups)
    shapes = tuple((*x[:-1], n) for x, n in zip(case.x_shapes, own, strict=True))
    return replace(case, linear=call, x_shapes=shapes)


def _call(
    kind: int,
    size: int,
    ag_dim: int = 0,
    rs_dim: int = 0,
    *,
    inner_dim_is_ag: bool = True,
    trans_weight: bool = True,
    has_residual: bool = False,
    keep_intermediate: bool = False,
) -> LinearParallel:
    """Return parameters; type 4 gets two dims if the number of ranks has them."""
    if kind == ALL_GATHER_REDUCE_SCATTER and not ag_dim:
        ag_dim = 2 if size % 2 == 0 else size
        rs_dim = size // ag_dim
    return LinearParallel(
        kind, size, ag_dim, rs_dim, inner_dim_is_ag, trans_weight, has_residual, keep_intermediate
    )


def _case(
    name: str,
    call: LinearParallel,
    rows: int,
    k: int,
    columns: int,
    dtype: str,
    *,
    batch: int = 0,
    data: str = "exact",
) -> Case:
    """Return a case in which every rank's x has `rows` in dim 0 (and `batch` in dim 1)."""
    shape = (rows, batch, k) if batch else (rows, k)
    return _with_rows(name, call, (shape,) * call.rank_size, columns, dtype, data)


def _quantised(
    name: str, call: LinearParallel, rows: int, k: int, columns: int, dtype: str, data: str
) -> Case:
    return _case(name, call, rows, k, columns, dtype, data=data)


def _uneven_case(name: str, call: LinearParallel, share: str, dtype: str) -> Case:
    """Return a case whose lists follow `share`, rotated by one place from group to group."""
    ranks = range(call.rank_size)
    own = [place(call, rank) for rank in ranks]
    gathers = call.type != REDUCE_SCATTER
    heights = [_turned(share, len(p.gathered), p.rs_index if gathers else 0) for p in own]
    rows = sum(heights[0]) if gathers else 3 * call.rank_size
    if share == "none":
        rows = 0
    gather_rows = tuple(tuple(h) for h in heights) if gathers else ()
    x_rows = [heights[r][own[r].ag_index] if gathers else rows for r in ranks]
    if call.type == ALL_GATHER:
        scatter_rows: tuple[tuple[int, ...], ...] = ()
    else:
        scatter_rows = tuple(tuple(_split(rows, len(p.reduced), p.ag_index)) for p in own)
    lists = replace(call, gather_rows=gather_rows, scatter_rows=scatter_rows)
    return _with_rows(name, lists, tuple((n, 13) for n in x_rows), 11, dtype, "exact")


def _turned(share: str, members: int, turn: int) -> list[int]:
    heights = [0] * members if share == "none" else shares(share, members, 2)
    return heights[turn % members :] + heights[: turn % members]


def _split(rows: int, members: int, turn: int) -> list[int]:
    """Return unequal numbers of rows of each member, different in the next group."""
    weights = [(3 * (i + turn)) % 4 for i in range(members)]
    if not sum(weights):
        weights[turn % members] = 1
    heights = [rows * w // sum(weights) for w in weights]
    heights[-1] += rows - sum(heights)
    return heights


def _with_rows(
    name: str,
    call: LinearParallel,
    x_shapes: tuple[tuple[int, ...], ...],
    columns: int,
    dtype: str,
    data: str,
) -> Case:
    case = Case(
        operator="linear_parallel",
        name=name,
        rank_size=call.rank_size,
        dtype=dtype,
        counts=(),
        displs=(),
        x_shapes=x_shapes,
        rows=(),
        kind=data,
        linear=call,
        columns=columns,
    )
    heights = [output_block(call, r, x_shapes)[2] for r in range(call.rank_size)]
    return replace(case, rows=tuple(shape[0] for shape in heights))
