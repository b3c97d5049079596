"""The cases of AllToAllV (counts in the struct) and of AllToAllVV2 (counts as tensors).

In the cases named nothing-... a rank receives nothing: ATB's structs refuse that, the plain level
does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..data.exchange import Exchange, exchange, flat, square
from ..data.shares import SHARES, gapped, reversed_order, shares
from .case import Case, rows_of
from .case_lists import HUGE, every_dtype, moved_data

_Counts = Sequence[Sequence[int]]


def all_to_all_v_cases(size: int, operator: str = "all_to_all_v") -> Iterator[Case]:
    """Yield every dtype, share, kind of data, placement of blocks and shape, each once.

    Example:
        >>> cases = list(all_to_all_v_cases(3))
        >>> all(0 in case.rows for case in cases if case.name.startswith("nothing-"))
        True
    """
    yield from (replace(case, operator=operator) for case in _cases(size))


def _cases(size: int) -> Iterator[Case]:
    yield from every_dtype(_case, _turning("1:2:3:4", size, 3))
    for pattern in SHARES:
        # Rank q's counts are rank 0's, rotated by q places, so all ranks receive the same number.
        counts = _turning(pattern, size, 8)
        nothing = "" if sum(counts[0]) else "nothing-"
        yield _case(f"{nothing}shares-{pattern.replace(':', '-')}", counts)
    yield _case("shares-all-other", square(shares("primes", size * size, 4), size))
    yield _case("shares-by-destination", [shares("1:2:3:4", size, 5)] * size, dtype="int64")
    yield from moved_data(_case, _turning("3:5", size, 20))
    yield from _layouts(size)
    yield from _empty(size)
    yield from _shapes(size)


def _layouts(size: int) -> Iterator[Case]:
    """Yield cases with unusual places of slices in x, or of blocks in the output."""
    counts = square(shares("primes", size * size, 2), size)
    received = exchange(counts).recv_counts
    backwards = [reversed_order(line) for line in counts]
    yield _case("layout-slices-reversed", counts, sdispls=backwards, dtype="int16")
    turned = [reversed_order(line) for line in received]
    yield _case("layout-blocks-reversed", counts, rdispls=turned, dtype="float32")
    yield _case("layout-all-reversed", counts, sdispls=backwards, rdispls=turned, dtype="uint8")
    apart = [gapped(line, 3) for line in counts]
    yield _case("layout-slices-apart", counts, sdispls=apart)
    near = [list(range(size))] * size
    yield _case("layout-slices-overlap", counts, sdispls=near, dtype="int32")
    same = [[7] * size for _ in range(size)]
    yield _case("layout-same-slice", same, sdispls=[[5] * size] * size, dtype="float16")
    yield _case("layout-part-of-x", counts, dtype="int8", extra=2)
    yield _case("layout-cut-rows", counts, dtype="float64", row=(5, 3))
    huge = [list(line) for line in counts]
    huge[0][size - 1] = HUGE
    yield _case("layout-huge-block", huge, dtype="int64", row=(1,))


def _empty(size: int) -> Iterator[Case]:
    """Yield cases in which many slices are empty."""
    ranks = range(size)
    own = [[11 + q if q == r else 0 for r in ranks] for q in ranks]
    yield _case("empty-but-to-itself", own, dtype="float32")
    ring = [[5 + q if r == (q + 1) % size else 0 for r in ranks] for q in ranks]
    yield _case("empty-but-to-the-next", ring, dtype="int32")
    ends = [[0 if count else sum(line) for count in line] for line in ring]
    yield _case("empty-slices-at-the-end", ring, sdispls=ends, dtype="bool")
    many = [[6 + r if q == 0 else 0 for r in ranks] for q in ranks]
    yield _case("empty-but-from-rank-0", many, dtype="float64")
    if size > 1:
        one = [[6 + q if r == size - 1 else 0 for r in ranks] for q in ranks]
        yield _case("nothing-but-to-the-last", one, dtype="bfloat16")
        pair = [[13 if (q, r) == (size - 1, 0) else 0 for r in ranks] for q in ranks]
        yield _case("nothing-but-one-pair", pair, dtype="int8")
    yield _case("nothing-at-all", [[0] * size] * size, dtype="int16", extra=1)


def _shapes(size: int) -> Iterator[Case]:
    """Yield cases of 1 to 8 dimensions, and of ranks whose shapes differ."""
    counts = _turning("1:2:3:4", size, 4)
    for dims in range(1, 9):
        row = (2, 3, 1, 2, 1, 1, 2)[: dims - 1]
        yield _case(f"shape-{dims}d", counts, row=row)
    rows = [(), (2,), (3,), (2, 2)]
    shapes = tuple((rows_of(sum(line), rows[q % 4]), *rows[q % 4]) for q, line in enumerate(counts))
    yield replace(_case("shape-differs", counts, dtype="int16"), x_shapes=shapes)


def _turning(pattern: str, size: int, unit: int) -> list[list[int]]:
    """Return the table whose line q is a pattern of shares, rotated by q places to the right."""
    line = shares(pattern, size, unit)
    return [line[-q % size :] + line[: -q % size] for q in range(size)]


def _case(
    name: str,
    counts: _Counts,
    dtype: str = "float16",
    *,
    sdispls: _Counts | None = None,
    rdispls: _Counts | None = None,
    row: tuple[int, ...] = (4,),
    kind: str = "index",
    extra: int = 0,
) -> Case:
    """Return a case whose x has its slices and `extra` rows."""
    call = exchange(counts, sdispls=sdispls, rdispls=rdispls)
    return Case(
        operator="all_to_all_v",
        name=name,
        rank_size=len(counts),
        dtype=dtype,
        counts=flat(call.send_counts),
        displs=flat(call.sdispls),
        x_shapes=tuple((rows_of(end, row) + extra, *row) for end in _ends(call)),
        rows=call.lengths,
        kind=kind,
        rdispls=flat(call.rdispls),
    )


def _ends(call: Exchange) -> list[int]:
    """Return the last element, plus one, that each rank sends."""
    lines = zip(call.send_counts, call.sdispls, strict=True)
    return [max(n + start for n, start in zip(*line, strict=True)) for line in lines]
