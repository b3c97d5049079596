"""The costs that are found from rows of the bench, and the files with these rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collops.plan.calibration import Timed, calibrate, misfit, read_rows, timed
from collops.plan.prediction import ASSUMED, GATHER, REDUCE, Call, Costs, blocks, predict

SIZES = tuple(1 << bits for bits in (10, 12, 14, 16, 18, 20, 22))


def row(size: int, us: float, **others: Any) -> dict[str, Any]:
    """A row of the bench, as far as it is read."""
    known = {
        **{"bench": "all_gather_v", "column": "plain", "dtype": "f32", "bytes": size},
        **{"hosts": 2, "ranks": 2, "counts": [size // 8] * 2, "ms": us / 1e3},
    }
    return {**known, **others}


def measured_with(costs: Costs, ops: tuple[str, ...] = (GATHER,)) -> list[Timed]:
    """Calls of 2 hosts with 1 rank each that take the predicted time."""
    calls = [Call(op, (0, 1), (size // 8,) * 2) for op in ops for size in SIZES]
    return [
        Timed(call, size, predict(call, costs).time_us)
        for call, size in zip(calls, SIZES * len(ops), strict=True)
    ]


def test_latency_and_rate_are_those_of_the_calls() -> None:
    slow = replace(ASSUMED, latency_us=18.0, message_us=9.0, network_rate=1000.0)
    measured = measured_with(slow, (GATHER, REDUCE))
    found = calibrate(measured)
    assert found.latency_us == pytest.approx(18.0, rel=0.1)
    assert found.message_us == pytest.approx(9.0, rel=0.1)
    assert found.network_rate == pytest.approx(1000.0, rel=0.1)
    assert misfit(found, measured) < 0.15
    # What it has not seen, either.
    for call in (Call(GATHER, blocks(3, 1), (40000,) * 3), Call(GATHER, (0, 1), (1000, 300000))):
        right, guessed = (predict(call, costs).time_us for costs in (slow, found))
        assert guessed == pytest.approx(right, rel=0.2)


def test_one_host_gives_copies_and_meetings() -> None:
    rate, meeting = 5000.0, 3.0
    calls = [Call(GATHER, (0, 0), (size // 8,) * 2) for size in SIZES]
    inside = [
        Timed(call, size, 2 * meeting + (1.5 * size if size > 1024 else 0) / rate)
        for call, size in zip(calls, SIZES, strict=True)
    ]
    found = calibrate(inside + measured_with(ASSUMED))
    assert found.meeting_us == pytest.approx(meeting)
    assert found.copy_rate == pytest.approx(rate, rel=0.01)
    assert found.memory_rate == pytest.approx(2 * rate, rel=0.01)


def test_equal_calls_count_by_their_median() -> None:
    [both] = timed([row(1024, us) for us in (5, 9, 6)])
    assert (both.us, both.size) == (pytest.approx(6), 1024)
    assert both.call == Call(GATHER, (0, 1), (128, 128))


def test_other_rows_are_left_out() -> None:
    others: list[dict[str, Any]] = [{"bench": "barrier"}, {"column": "window"}, {"column": "gloo"}]
    assert timed([row(1024, 5, **other) for other in others]) == []
    with pytest.raises(ValueError, match="no row of all_gather_v or reduce_scatter_v on 2 hosts"):
        calibrate(timed([row(1024, 5, hosts=1, counts=[128, 128])]))


def test_rows_are_read_from_joined_files(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(row(1024, 5))}\n\n{json.dumps(row(2048, 6))}\n")
    assert [each["bytes"] for each in read_rows(path)] == [1024, 2048]


@pytest.mark.parametrize(
    ("text", "problem"),
    [("{}\n", "line 1: no row of collops bench"), ('{"bench": 1}\nx', "line 2: not JSON")],
)
def test_another_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=problem):
        read_rows(path)
