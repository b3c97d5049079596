"""`collops bench experts` and `collops bench quantised` as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.bench.benches import bench, rows_of


def test_all_ways_with_experts_run_and_are_right(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    done = bench("experts", "--quick", "--ranks", "2,4", "--iterations", "1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert "### Summary" in done.stdout
    rows = rows_of(file)
    assert {(row["kind"], row["ranks"], row["routing"]) for row in rows} == {
        (kind, ranks, routing)
        for kind in ("5", "6", "layer")
        for ranks in (2, 4)
        for routing in ("even", "4:1")
    }
    for row in rows:
        named = (row["kind"], row["ranks"], row["routing"], row["column"])
        assert row["wrong_ranks"] == (None if row["column"] == "product" else 0), named
    # Of 5 tokens of 96 bytes on 4 ranks: all to the 3 others, and as many sums back.
    sent = [row["sent_mib"] for row in rows if (row["column"], row["ranks"]) == ("gather", 4)]
    assert sent == pytest.approx([2 * 3 * 5 * 96 / 2**20] * 2, abs=1e-3)


def test_ranks_must_divide_the_experts() -> None:
    done = bench("experts", "--ranks", "3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "must divide the 8 experts" in done.stderr


def test_products_of_int8_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    done = bench("quantised", "--quick", "--iterations", "1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    rows = rows_of(file)
    assert {(row["m"], row["ranks"]) for row in rows} == {(1, 1), (24, 1)}
    assert {"f32", "w8a8", "w8a8_kn", "w8a32", "read"} <= {row["column"] for row in rows}
