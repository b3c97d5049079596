"""The costs that are found from rows of the bench, and the files with these rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collops.plan.calibration import Timed, calibrate, misfit, predicted_us, read_rows, timed
from collops.plan.prediction import ASSUMED, GATHER, REDUCE, Call, Costs, blocks, predict

SIZES = tuple(1 << bits for bits in (10, 12, 14, 16, 18, 20, 22))
# CPU is dear, and the network fast: as between namespaces of one machine.
DEAR_CPU = Costs(
    message_us=3.0,
    latency_us=2.0,
    network_rate=1e8,
    stream_us=((32 << 10, 10.0), (512 << 10, 300.0), (2 << 20, 800.0)),
    meeting_us=1.5,
    copy_rate=20_000.0,
    memory_rate=40_000.0,
    turn_us=4.0,
)


def row(size: int, us: float, **others: Any) -> dict[str, Any]:
    """A row of the bench, as far as it is read."""
    known = {
        **{"bench": "all_gather_v", "column": "plain", "dtype": "f32", "bytes": size},
        **{"hosts": 2, "ranks": 2, "counts": [size // 8] * 2, "ms": us / 1e3},
        **{"one_clock": True, "cores": 2},
    }
    return {**known, **others}


def measured_with(costs: Costs, shared: int, ops: tuple[str, ...] = (GATHER,)) -> list[Timed]:
    """Calls of 2 hosts with 1 rank each that take the simulated time."""
    calls = [Call(op, (0, 1), (size // 8,) * 2) for op in ops for size in SIZES]
    return [
        Timed(call, size, predict(call, costs, shared).time_us, shared)
        for call, size in zip(calls, SIZES * len(ops), strict=True)
    ]


def test_calls_on_two_cores_and_on_one_tell_cpu_and_network_apart() -> None:
    measured = measured_with(DEAR_CPU, 2, (GATHER, REDUCE)) + measured_with(DEAR_CPU, 1)
    found = calibrate(measured)
    assert misfit(found, measured) < 0.1
    # What it has not seen, either.
    for call in (
        Call(GATHER, blocks(3, 1), (40000,) * 3),
        Call(REDUCE, blocks(4, 1), (100,) * 4),
        Call(GATHER, blocks(2, 1), (1000, 300000)),
    ):
        right, guessed = (predict(call, costs, 2).time_us for costs in (DEAR_CPU, found))
        assert guessed == pytest.approx(right, rel=0.25)


def test_without_calls_on_one_core_bytes_are_the_networks() -> None:
    slow = replace(ASSUMED, latency_us=9.0, network_rate=1000.0)
    measured = measured_with(slow, 0)
    found = calibrate(measured)
    assert found.latency_us == pytest.approx(9.0, rel=0.05)
    assert found.network_rate == pytest.approx(1000.0, rel=0.05)
    assert misfit(found, measured) < 0.05


def test_one_host_gives_copies_and_meetings() -> None:
    rate, meeting = 5000.0, 3.0
    calls = [Call(GATHER, (0, 0), (size // 8,) * 2) for size in SIZES]
    inside = [
        Timed(call, size, meeting + (1.5 * size if size > 1024 else 0) / rate, 0)
        for call, size in zip(calls, SIZES, strict=True)
    ]
    found = calibrate(inside + measured_with(ASSUMED, 0))
    assert found.meeting_us == pytest.approx(meeting)
    assert found.copy_rate == pytest.approx(rate, rel=0.01)
    assert found.memory_rate == pytest.approx(2 * rate, rel=0.01)


def test_equal_calls_count_by_their_median() -> None:
    rows = [row(1024, us) for us in (5, 9, 6)] + [row(1024, 20, cores=1)]
    [both, one] = timed(rows)
    assert (both.us, both.shared_cores, both.size) == (pytest.approx(6), 2, 1024)
    assert (one.us, one.shared_cores) == (pytest.approx(20), 1)
    assert both.call == Call(GATHER, (0, 1), (128, 128))


def test_hosts_with_clocks_of_their_own_share_no_cores() -> None:
    assert timed([row(1024, 5, one_clock=False)])[0].shared_cores == 0


def test_other_rows_are_left_out() -> None:
    others: list[dict[str, Any]] = [{"bench": "barrier"}, {"column": "window"}, {"column": "gloo"}]
    assert timed([row(1024, 5, **other) for other in others]) == []
    with pytest.raises(ValueError, match="no row of all_gather_v or reduce_scatter_v on 2 hosts"):
        calibrate(timed([row(1024, 5, hosts=1, counts=[128, 128])]))


def test_a_calibrated_time_is_that_of_the_simulation() -> None:
    each = measured_with(DEAR_CPU, 1)[0]
    assert predicted_us(DEAR_CPU, each) == each.us


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
