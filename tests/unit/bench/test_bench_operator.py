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

import collops
from collops.bench.arguments import parse
from collops.bench.groups import share_rows
from collops.bench.measure import Maker, Variant
from collops.bench.measured_point import MeasuredPoint
from collops.bench.operator import Operator, Row
from collops.bench.peers.installed import Peers
from collops.bench.plot import parts_of, save_plot
from collops.bench.request import Point, Request
from collops.bench.tables import compared, point_table
from collops.bench.variant import Variants
from collops.terminal.arguments import counts
from collops.testing import run_ranks

COLUMNS = 5
MISSING = "rows: no column missing: KeyError: 'missing'"


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


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--total", type=lambda text: counts(text, ","), default=(11, 7))
    parser.add_argument("--shares", type=lambda text: counts(text, ":"), default=(1,))


def make_points(options: argparse.Namespace) -> list[Point]:
    return [
        GatherPoint(dtype=dtype, rows=share_rows(total, 2, options.shares))
        for dtype in options.dtype
        for total in options.total
    ]


def compare(row: Row, others: dict[str, Row]) -> Row:
    return {**row, "to_own": round(row["ms"] / others["gathered"]["ms"], 4)}


GATHER = Operator(
    name="gather",
    description="Times AllGatherV.",
    epilog="Without arguments: 11 and 7 rows.",
    quick="few rows",
    add_options=add_options,
    points=make_points,
    variants=GatherVariants,
    own=("gathered",),
    reference="gathered",
    torch_peers=(),
    torch_columns="",
    compare=compare,
    title=lambda row: f"{sum(row['rows'])} rows, {row['dtype']}",
    headline=lambda row, text: f"Rows {row['rows']}; {text}.",
    ratios={"/ own": "to_own"},
    summary=lambda points: (("rows", "ms"), [[str(row["ms"]) for row in points[0][:2]]]),
    parts={"move": "gather", "copy": "copy"},
)


def measure(rank: int, points: list[Point]) -> list[list[Row]]:
    request = Request(
        operator=GATHER.name,
        points=tuple(points),
        iterations=2,
        threads=1,
        own=GATHER.own,
        peers=(),
    )
    with collops.init() as work, collops.init(comm_domain="meeting") as meeting:
        peers = Peers(request, GATHER, "", rank, work.size)
        given = request, work, meeting.barrier, peers
        return [MeasuredPoint(GATHER, point, *given).run() for point in points]


def test_an_operator_of_one_module_is_measured(tmp_path: Path) -> None:
    options = parse(GATHER, ["--quick", "--dtype", "f32,f16", "--shares", "1:3"])
    assert (options.iterations, options.sweep) == (3, False)
    records, _ = run_ranks(measure, 2, tuple(make_points(options)))
    assert [record["rows"] for _, record in records] == [(2, 9), (1, 6)] * 2
    for note, record in records:
        assert note["text"].endswith(MISSING)
        rows = compared(GATHER, json.loads(json.dumps(record)))
        # The data of rank 1 alone is spoiled on rank 1.
        assert {row["column"]: row["wrong_ranks"] for row in rows} == {
            **{"gathered": 0, "copied": 0, "spoiled": 1}
        }
        assert set(parts_of(GATHER, rows[1])) == {"move", "copy", "rest"}
        lines = point_table(GATHER, rows).splitlines()
        assert lines[0] == f"### {sum(record['rows'])} rows, {record['dtype']}"
        assert lines[2].startswith(f"Rows {list(record['rows'])}; 1 thread(s) a rank, ")
        assert [cell.strip() for cell in lines[4].split("|")[1:-1]] == [
            *("", "ms", "p10 .. p90", "/ own", "adds MiB", "result")
        ]
        assert lines[6].startswith("| gathered rows |")
    pytest.importorskip("matplotlib")
    save_plot(GATHER, tmp_path / "parts.png", [compared(GATHER, record) for _, record in records])
    assert (tmp_path / "parts.png").read_bytes().startswith(b"\x89PNG")


def test_an_operator_without_a_sweep_has_no_such_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(GATHER, ["--sweep"])
    assert capsys.readouterr().err.startswith("collops bench gather: unrecognized arguments: --swe")
