"""The bench measures an operator that is defined in this file only."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collops.bench.measure import Maker, Variant
from collops.bench.operator import Operator, Point, Row
from collops.bench.options import parse
from collops.bench.plot import parts_of, save_bars
from collops.bench.shares import share_rows
from collops.bench.tables import point_table
from collops.bench.variants import Variants
from collops.terminal.arguments import counts
from collops.testing import run_ranks
from tests.unit.bench.benches import measurement

COLUMNS = 5
MISSING = "rows: no column missing: KeyError: 'missing'"
PARTS = {"move": "gather", "copy": "copy"}


@dataclass(frozen=True, kw_only=True)
class GatherPoint(Point):
    rows: tuple[int, ...]

    @property
    def ranks(self) -> int:
        return len(self.rows)

    @property
    def title(self) -> str:
        return f"{sum(self.rows)} rows"

    def describe(self) -> Row:
        return {"dtype": self.dtype, "rows": self.rows}


class GatherVariants(Variants):
    """AllGatherV in place, and beside it into new memory, whose content is then copied."""

    point: GatherPoint

    def own(self, key: str) -> Variant:
        variant, x, result = self._variant(key)
        comm, rows = self.connect(), self.point.rows
        variant.steps.append(("move", lambda: comm.all_gatherv(x, rows, out=result)))
        return variant

    def others(self) -> Iterator[tuple[str, Maker]]:
        yield "copied", lambda: self._copied("copied", 0)
        yield "spoiled", lambda: self._copied("spoiled", 1)
        yield "missing", lambda: self._copied("missing", {}["missing"])

    def _variant(self, key: str) -> tuple[Variant, Any, Any]:
        x = self.element.matrix(self.point.rows[self.work.rank], COLUMNS)
        self.element.fill(x, (self.seed, self.work.rank), 2 / 3)
        result = self.element.poisoned(sum(self.point.rows), COLUMNS)
        numbers = self.element.numbers
        return Variant(key, f"{key} rows", [], x, result), numbers(x), numbers(result)

    def _copied(self, key: str, added: int) -> Variant:
        variant, x, result = self._variant(key)
        moved: list[Any] = []
        variant.steps = [
            ("move", lambda: moved.append(self.work.all_gatherv(x, self.point.rows))),
            ("copy", lambda: np.add(moved.pop(), self.work.rank * added, out=result)),
        ]
        return variant


class Gather(Operator):
    name, description, epilog = "gather", "Times AllGatherV.", "Without arguments: 11 and 7 rows."
    quick, own, reference, variants = "few rows", ("gathered",), "gathered", GatherVariants

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--total", type=lambda text: counts(text, ","), default=(11, 7))
        parser.add_argument("--shares", type=lambda text: counts(text, ":"), default=(1,))

    def points(self, options: argparse.Namespace) -> list[Point]:
        return [
            GatherPoint(dtype=dtype, rows=share_rows(total, 2, options.shares))
            for dtype in options.dtype
            for total in options.total
        ]

    def compare(self, row: Row, others: dict[str, Row]) -> Row:
        return {**row, "to_own": round(row["ms"] / others["gathered"]["ms"], 4)}

    def text(self, rows: list[Row]) -> str:
        title = f"{sum(rows[0]['rows'])} rows, {rows[0]['dtype']}"
        return point_table(title, f"Rows {rows[0]['rows']}; {{}}.", {"/ own": "to_own"}, rows)

    def save_plot(self, path: Path, points: list[list[Row]]) -> None:
        save_bars(path, PARTS, {str(number): rows for number, rows in enumerate(points)})


GATHER = Gather()


def measure(rank: int, points: list[Point]) -> list[list[Row]]:
    with measurement() as made:
        return [made(GATHER, point).run() for point in points]


def test_an_operator_of_one_module_is_measured(tmp_path: Path) -> None:
    options = parse(GATHER, ["--quick", "--dtype", "f32,f16", "--shares", "1:3"])
    assert (options.iterations, options.sweep) == (3, False)
    records, _ = run_ranks(measure, 2, tuple(GATHER.points(options)))
    assert [record["rows"] for _, record in records] == [(2, 9), (1, 6)] * 2
    for note, record in records:
        assert note["text"].endswith(MISSING)
        rows = GATHER.rows(json.loads(json.dumps(record)))
        # The data of rank 1 alone is spoiled on rank 1.
        assert {row["column"]: row["wrong_ranks"] for row in rows} == {
            **{"gathered": 0, "copied": 0, "spoiled": 1}
        }
        assert set(parts_of(PARTS, rows[1])) == {"move", "copy", "rest"}
        lines = GATHER.text(rows).splitlines()
        assert lines[0] == f"### {sum(record['rows'])} rows, {record['dtype']}"
        assert lines[2].startswith(f"Rows {list(record['rows'])}; 1 thread(s) a rank, ")
        assert [cell.strip() for cell in lines[4].split("|")[1:-1]] == [
            *("", "ms", "p10 .. p90", "/ own", "adds MiB", "result")
        ]
        assert lines[6].startswith("| gathered rows |")
        [wrong] = [line for line in lines if "WRONG on 1 rank(s)" in line]
        assert wrong.startswith("| spoiled rows")
    pytest.importorskip("matplotlib")
    GATHER.save_plot(tmp_path / "parts.png", [GATHER.rows(record) for _, record in records])
    assert (tmp_path / "parts.png").read_bytes().startswith(b"\x89PNG")


def test_an_operator_has_only_the_options_that_it_has_a_use_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for option in ("--sweep", "--peers", "--backend", "--rank-table"):
        with pytest.raises(SystemExit):
            parse(GATHER, [option])
        assert f"collops bench gather: unrecognized arguments: {option}" in capsys.readouterr().err
