"""AllToAllV and AllToAllVV2: every rank sends a different slice of its x to every rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..data.dtypes import Array
from ..data.exchange import COUNT_LISTS, Exchange, Table, exchange_of_lists, square
from ..data.generators import even_split
from ..data.shares import first_overlap
from .all_to_all_v_cases import all_to_all_v_cases
from .case import Case
from .operator import Input, Inputs, Numbers, Operator, Params, each, own_list, xs_of
from .output_layout import OutputLayout, exchange_layout


def all_to_all_v(xs: Sequence[Array], call: Exchange) -> list[Array]:
    """Return the outputs of AllToAllV and of AllToAllVV2, one per rank.

    `output_r.flat[rdispls_r[q] : rdispls_r[q] + recvCounts_r[q]] =
    x_q.flat[sdispls_q[r] : sdispls_q[r] + sendCounts_q[r]]`, for all ranks q and r, where
    `recvCounts_r[q] = sendCounts_q[r]`

    Counts and displacements are elements; slices and blocks may cut rows. output_r is [1, n_r],
    n_r = the sum of recvCounts_r. Its blocks lie in any order and share no element; since they
    end within n_r elements, they cover all of them, and an output has no gaps. Slices of x are
    only read: they may overlap, and need not cover x. An empty slice or block may begin anywhere
    from 0 to the end. x may have any shape of 1 to 8 dims, another one on every rank.

    dtypes: all of DTYPES, the same on every rank.

    Errors of the operators, in the order of their checks. Both have before infer_shape's lines
    what all operators have (number of inputs: 5; dims: 8; sizes: 9; dtypes, formats: 13). AllToAllV
    has the four lists in its struct and one input, x:

    - creation: a list has not P numbers, in the order sendCounts, sdispls, recvCounts, rdispls:
      1; then a number below 0, in the same order: 1
    - infer_shape: a slice ends past x: 1; the sum of recvCounts does not fit into 64 bits: 1, or
      is 0: 1; a block ends past that sum: 1; two blocks overlap: 1; the output is over 256 GB: 9

    AllToAllVV2 has the inputs x, sendCounts, sdispls, recvCounts, rdispls [P] int64 on the host,
    and y [n] int8, of which only the length is read (without it the output's shape could not be
    found from descriptions alone):

    - infer_shape: a list or y is not 1-D: 16; a list has not P numbers: 8; the output [1, n] is
      over 256 GB, or n is 0: 9
    - get_workspace_size, after the output's checks (number: 5; dims: 16; shape: 8; dtype: 13): a
      slice ends past x: 8; a block ends past the output: 8; the sum of recvCounts is not n: 8; a
      count or displacement below 0: 1; two blocks overlap: 1; a list has no host data: 1

    Both, together: a rank's sendCounts[r] is not recvCounts[q] of the rank r that it goes to, or
    the ranks disagree on dtype or rankRoot: 102, with both ranks, both fields and both values.

    Args:
        xs: x of every rank, of one dtype; bfloat16 as uint16 bits.
        call: counts and displacements of every rank.

    Returns:
        One new array [1, n_r] per rank, of x's dtype; [1, 0] where a rank gets nothing, which
        the operators refuse and the plain level allows.

    Raises:
        ValueError: tables of other sizes than xs, dtypes that differ, a slice outside its x, a
            block that is negative, past the output's end or over another block.

    Example:
        >>> from ..data.exchange import exchange
        >>> xs = [np.array([[0, 1], [2, 3]]), np.array([10, 11, 12])]
        >>> call = exchange([[1, 3], [2, 1]], rdispls=[[2, 0], [0, 3]])
        >>> [output.tolist() for output in all_to_all_v(xs, call)]
        [[[10, 11, 0]], [[1, 2, 3, 12]]]
    """
    _check_tables(xs, call)
    for q, x in enumerate(xs):
        _check_slices(call.send_counts[q], call.sdispls[q], x.size, q)
    outputs = []
    for r, length in enumerate(call.lengths):
        counts, starts = call.recv_counts[r], call.rdispls[r]
        _check_blocks(counts, starts, length, r)
        output = np.zeros((1, length), xs[0].dtype)
        for x, sent, count, start in zip(xs, call.sdispls, counts, starts, strict=True):
            output[0, start : start + count] = x.reshape(-1)[sent[r] : sent[r] + count]
        outputs.append(output)
    return outputs


def all_to_all_v_rows(xs: Sequence[Array], send_sizes: Sequence[Sequence[int]]) -> list[Array]:
    """Return the results of the plain level's all_to_allv on every rank: whole rows, packed.

    `output_r = rows of every x_q that q sends to r, one rank after the other`: x_q is
    `send_sizes[q][0]` rows for rank 0, then `send_sizes[q][1]` rows for rank 1, and so on.

    `recv_sizes_r[q] = send_sizes_q[r]`. One rank, and ranks that send or receive nothing, are
    legal. Any dtype.

    Args:
        xs: x of every rank, [rows, d1, ...]; rows may differ, the other dims not.
        send_sizes: rows that each rank sends to each; their sum is the rows of its x.

    Returns:
        One new array [sum of rows received, d1, ...] per rank.

    Raises:
        ValueError: rows or dtypes that differ, or sizes that are not those of xs.

    Example:
        >>> xs = [np.array([[0], [1], [2]]), np.array([[10]])]
        >>> [output.tolist() for output in all_to_all_v_rows(xs, [[1, 2], [1, 0]])]
        [[[0], [10]], [[1], [2]]]
    """
    if any(len(sizes) != len(xs) for sizes in (send_sizes, *send_sizes)):
        raise ValueError(f"all_to_all_v_rows: send_sizes must be {len(xs)} x {len(xs)} numbers")
    parts = []
    for q, (x, sizes) in enumerate(zip(xs, send_sizes, strict=True)):
        if x.shape[1:] != xs[0].shape[1:] or x.dtype != xs[0].dtype:
            raise ValueError(
                f"all_to_all_v_rows: rows of xs[{q}] are {x.shape[1:]} {x.dtype}, "
                f"of xs[0] {xs[0].shape[1:]} {xs[0].dtype}"
            )
        if min(sizes) < 0 or sum(sizes) != len(x):
            raise ValueError(
                f"all_to_all_v_rows: send_sizes[{q}] are {list(sizes)}, xs[{q}] has {len(x)} rows"
            )
        parts.append(np.split(x, np.cumsum(sizes)[:-1]))
    return [np.concatenate([part[r] for part in parts]) for r in range(len(xs))]


def _check_tables(xs: Sequence[Array], call: Exchange) -> None:
    """Raise ValueError where the tables are not P x P, or the dtypes differ."""
    tables: dict[str, Table] = {
        "send_counts": call.send_counts,
        "sdispls": call.sdispls,
        "rdispls": call.rdispls,
    }
    for name, table in tables.items():
        if len(table) != len(xs) or any(len(line) != len(xs) for line in table):
            raise ValueError(f"all_to_all_v: {name} must be {len(xs)} x {len(xs)} numbers")
    for q, x in enumerate(xs):
        if x.dtype != xs[0].dtype:
            raise ValueError(f"all_to_all_v: xs[{q}] is {x.dtype}, xs[0] is {xs[0].dtype}")


def _check_slices(counts: Sequence[int], starts: Sequence[int], size: int, rank: int) -> None:
    for r, (count, start) in enumerate(zip(counts, starts, strict=True)):
        if count < 0 or start < 0 or count > size - start:
            raise ValueError(
                f"all_to_all_v: slice {r} of rank {rank} (sdispls {start} + send_counts {count}) "
                f"is outside x's {size} elements"
            )


def _check_blocks(counts: Sequence[int], starts: Sequence[int], size: int, rank: int) -> None:
    for q, (count, start) in enumerate(zip(counts, starts, strict=True)):
        if start < 0 or count > size - start:
            raise ValueError(
                f"all_to_all_v: block {q} of rank {rank} (rdispls {start} + recv_counts {count}) "
                f"exceeds the output's {size} elements"
            )
    overlap = first_overlap(starts, counts)
    if overlap is not None:
        p, q, at = overlap
        raise ValueError(f"all_to_all_v: blocks {p} and {q} of rank {rank} overlap at element {at}")


def exchange_of(case: Case) -> Exchange:
    """Return the tables of a case of AllToAllV or AllToAllVV2.

    Raises:
        ValueError: its lists are not P x P numbers.

    Example:
        >>> case = Case("all_to_all_v", "tiny", 2, "int8", (1, 2, 1, 0), (0, 1, 0, 1),
        ...             ((3,), (1,)), (2, 2), rdispls=(0, 1, 0, 2))
        >>> exchange_of(case).recv_counts
        ((1, 1), (2, 0))
    """
    lists = (case.counts, case.displs, case.rdispls)
    return Exchange(*(square(numbers, case.rank_size) for numbers in lists))


def _params(case: Case) -> dict[str, Any]:
    call = exchange_of(case)
    own = [call.lists(rank) for rank in range(case.rank_size)]
    return {name: [lists[name] for lists in own] for name in COUNT_LISTS}


def _by_struct(params: Params, inputs: Inputs) -> Exchange:
    ranks = range(len(inputs))
    lists = {name: [own_list(params, name, rank) for rank in ranks] for name in COUNT_LISTS}
    return exchange_of_lists(lists)


def _by_tensors(params: Params, inputs: Inputs) -> Exchange:
    positions = enumerate(COUNT_LISTS, start=1)
    return exchange_of_lists({name: [own[at].tolist() for own in inputs] for at, name in positions})


def _operator(name: str, call: Callable[[Params, Inputs], Exchange], **facts: Any) -> Operator:
    """Return the entry of AllToAllV (lists in the struct) or AllToAllVV2 (lists as tensors)."""

    def layout(params: Params, inputs: Inputs) -> OutputLayout:
        lists = call(params, inputs)
        return exchange_layout(lists.recv_counts, lists.rdispls)

    return Operator(
        name=name,
        cases=lambda size: all_to_all_v_cases(size, name),
        outputs=lambda params, inputs: each(all_to_all_v(xs_of(inputs), call(params, inputs))),
        layout=layout,
        must_receive=True,
        **facts,
    )


_HOLDS = ("counts", "displacements", "counts received", "displacements received")


def _numbers(case: Case, rank: int) -> Numbers:
    lists = exchange_of(case).lists(rank)
    return dict(zip(_HOLDS, (lists[name] for name in COUNT_LISTS), strict=True))


def _split(sizes: Sequence[int], rank: int) -> Numbers:
    # This rank's x in equal parts, and the equal part of every rank's x for this rank.
    sent = even_split([sizes[rank]] * len(sizes), divide=True)
    return dict(zip(_HOLDS, (*sent, *even_split(sizes, divide=True)), strict=True))


ALL_TO_ALL_V = _operator(
    "all_to_all_v",
    _by_struct,
    operation="AllToAllVOperation",
    params=_params,
    lists=COUNT_LISTS,
)
ALL_TO_ALL_V_V2 = _operator(
    "all_to_all_v_v2",
    _by_tensors,
    operation="AllToAllVV2Operation",
    inputs=(
        *(Input(name, "int64", holds) for name, holds in zip(COUNT_LISTS, _HOLDS, strict=True)),
        Input("y", "int8", "length"),
    ),
    numbers=_numbers,
    split=_split,
)
