"""The parts of the collectives' benchmarks: shares, bytes, copies of the limit, table, plot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collops.bench.collectives import place_text, series
from collops.bench.limit import copies
from collops.bench.operators import load
from collops.bench.shares import share, size_text, skews

GATHER = load("all_gather_v")


def own(name: str, counts: tuple[int, ...], rank: int) -> Any:
    """The variants of a rank, as far as they know their point."""
    made = object.__new__(load(name).variants)
    size = len(counts)
    starts = [sum(counts[:i]) for i in range(size)]
    known = {"counts": counts, "size": size, "rank": rank, "starts": starts}
    vars(made).update(known, before=(rank - 1) % size)
    return made


@pytest.mark.parametrize(
    ("elements", "ranks", "word", "expected"),
    [
        (10, 3, "even", (3, 3, 4)),
        (1, 2, "3:5", (0, 1)),
        (16, 4, "3:5", (3, 5, 3, 5)),
        (10, 3, "one-owner", (10, 0, 0)),
        (10, 2, "zeros", (0, 10)),
        (10, 5, "zeros", (0, 5, 0, 5, 0)),
    ],
)
def test_a_vector_is_shared_out(
    elements: int, ranks: int, word: str, expected: tuple[int, ...]
) -> None:
    assert share(elements, ranks, word) == expected


def test_the_words_of_skew_are_read() -> None:
    assert skews("even,3:5,even,one-owner") == ("even", "3:5", "one-owner")


def test_sizes_are_said_in_the_largest_unit() -> None:
    assert [size_text(size) for size in (1000, 1024, 3 << 20, 0)] == ["1000", "1k", "3m", "0"]


# nccl-tests' factors for 4 ranks with even counts, and those of the busiest rank for others.
@pytest.mark.parametrize(
    ("name", "counts", "expected"),
    [
        ("all_gather", (3, 3, 3, 3), 12 * 3 / 4),
        ("all_reduce", (3, 3, 3, 3), 12 * 2 * 3 / 4),
        ("all_to_all", (3, 3, 3, 3), 12 * 3 / 4),
        ("broadcast", (3, 3, 3, 3), 12),
        ("all_gather_v", (1, 2, 4, 5), 11),
        ("reduce_scatter_v", (12, 0, 0, 0), 12),
        ("all_to_all_v", (1, 2, 4, 5), 15),
        ("all_to_all_v", (0, 6), 6),
    ],
)
def test_the_busiest_rank(name: str, counts: tuple[int, ...], expected: float) -> None:
    assert own(name, counts, 0).busiest() == expected


@pytest.mark.parametrize("counts", [(4, 4, 4), (3, 0, 9), (0, 50_000, 0)])  # the last in chunks
@pytest.mark.parametrize("name", ["reduce_scatter_v", "all_reduce"])
def test_the_limit_adds_up_what_the_call_does(name: str, counts: tuple[int, ...]) -> None:
    """A run compares the limits of other calls with its own results; sums of bits are none."""
    owns = [own(name, counts, rank) for rank in range(3)]
    random = np.random.default_rng(1)
    xs = [random.integers(0, 1 << 20, sum(counts)).astype(np.uint32) for _ in owns]
    results = [np.full(each.result_rows(), 2**32 - 1, np.uint32) for each in owns]
    runs = [copies(each.parts(), xs, results, each.rank) for each in owns]
    for run in runs + runs:  # a second time, as all_reduce reads what others have added up
        run()
    for rank, (start, count) in enumerate(zip(owns[0].starts, counts, strict=True)):
        mine = slice(start, start + count) if name == "reduce_scatter_v" else slice(None)
        assert np.array_equal(results[rank], sum(xs)[mine]), rank


def row(column: str, ms: float, **more: Any) -> dict[str, Any]:
    """A row as rank 0 writes it: 2 MB over 4 ranks."""
    point = {"bytes": 2_000_000, "count": 500_000, "dtype": "f32", "skew": "3:5", "ranks": 4}
    times = {"ms_min": ms / 2, "ms": ms, "ms_p95": ms * 2}
    figures = {"moved_bytes": 2_000_000, "busiest_bytes": 1_500_000, "wrong_ranks": 0}
    launch = {"mpi": "", "one_clock": True, "threads": 1, "isa": "avx2", "backend": "shm"}
    said = {"placement": "4 ranks on 1 host", "flag_us": [0.2, 0.1], "label": column}
    return {**point, **times, **figures, **launch, **said, "column": column, **more}


def compared(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    others = {each["column"]: each for each in rows}
    return [GATHER.compare(each, others) for each in rows]


def test_the_table_is_that_of_nccl_tests() -> None:
    rows = compared(
        row("plain", 1.0),
        row("limit", 0.8),
        row("window", 0.5, wrong_ranks=2),
        row("exchange", 0.5, moved_bytes=500_000, wrong_ranks=None),
        row("ucx_tag_lat", 0.25, moved_bytes=500_000, wrong_ranks=None),
    )
    assert GATHER.head(rows[0]).splitlines()[1:] == [
        "### AllGatherV, 4 ranks on 1 host",
        "",
        "Backend shm; 1 thread(s) a rank, avx2; bandwidths in GB/s.",
        "",
        "|      bytes |      count | dtype |      skew | variant |    us min |    median |"
        "       p95 |   algbw |   busbw |  limit us | / limit | / plain | check |"
        "         flag us |",
        "| ---------: | ---------: | ----: | --------: | ------: | --------: | --------: |"
        " --------: | ------: | ------: | --------: | ------: | ------: | ----: |"
        " --------------: |",
    ]
    start = "|    2000000 |     500000 |   f32 |       3:5 | "
    end = "  near 0.20/0.10 |"
    assert GATHER.text(rows).splitlines() == [
        f"{start}  plain |    500.00 |   1000.00 |   2000.00 |   2.000 |   1.500 |    800.00 |"
        f"    1.25 |    1.00 |    ok |{end}",
        f"{start} window |    250.00 |    500.00 |   1000.00 |   4.000 |   3.000 |    800.00 |"
        f"    0.62 |    0.50 | WRONG |{end}",
        f"{start}exchange |    250.00 |    500.00 |   1000.00 |   1.000 |       - |    800.00 |"
        f"    0.62 |    2.00 |     - |{end}",
        f"{start}ucx_tag_lat |    125.00 |    250.00 |    500.00 |       - |       - |    800.00 |"
        f"    0.31 |    0.25 |     - |{end}",
    ]


def test_a_wrong_limit_and_a_call_without_bytes() -> None:
    [plain, _] = compared(row("plain", 1.0), row("limit", 0.8, wrong_ranks=1))
    assert "|     WRONG |    1.25 |" in GATHER.text([plain])
    [barrier] = compared(row("plain", 1.0, bytes=0, moved_bytes=0, wrong_ranks=None))
    cells = [cell.strip() for cell in GATHER.text([barrier]).split("|")[1:-1]]
    assert cells[:4] == ["-"] * 4
    assert cells[8:] == ["-", "-", "-", "-", "1.00", "-", "near 0.20/0.10"]


@pytest.mark.parametrize(
    ("flag_us", "expected"),
    [
        ((0.2, 0.12), "near 0.20/0.12"),
        ((0.3, 0.36), "far 0.30/0.36"),
        ((0.2, 0.36), "moved 0.20/0.36"),
        ((None, None), "-"),
    ],
)
def test_the_place_is_said(flag_us: tuple[float | None, float | None], expected: str) -> None:
    assert place_text(flag_us) == expected


def test_a_plot_has_a_line_for_each_variant() -> None:
    rows = [row("plain", 3.0), row("limit", 1.0), row("plain", 2.0, bytes=1000)]
    assert series(rows, "ms") == {
        "plain": ([1000, 2_000_000], [2.0, 3.0]),
        "limit": ([2_000_000], [1.0]),
    }
