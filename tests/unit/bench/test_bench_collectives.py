"""`collops bench` of each collective: runs, refusals, wrong results, times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import forked_main
import numpy as np
import own_output
import pytest

import collops
from collops.bench import command
from collops.bench.arguments import parse
from collops.bench.collectives.points import CollectivePoint
from collops.bench.measure import Variant, interleave, num_rewrites, together, typical_parts
from collops.bench.measured_point import MeasuredPoint
from collops.bench.operators import OPERATORS, load
from collops.bench.peers.installed import Peers
from collops.bench.request import Request
from collops.cli import main
from collops.testing import run_ranks
from patience import patience

COLLECTIVES = [name for name in OPERATORS if name != "linear_parallel"]
SKEWED = ("all_gather_v", "reduce_scatter_v", "all_to_all_v")
SUMS = ("all_reduce", "reduce_scatter", "reduce_scatter_v")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return own_output.run(
        [sys.executable, "-m", "collops", "bench", *arguments], capture_output=True
    )


@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_call_is_right(name: str, tmp_path: Path) -> None:
    rows_file = tmp_path / "rows.jsonl"
    ranks = 3 if name in SKEWED else 2
    dtypes = ("f16",) if name in SKEWED else ("f32", "bf16")
    words = ["--quick", "--ranks", str(ranks), "--json", str(rows_file), "--iterations", "1"]
    words += [] if name == "barrier" else ["--dtype", ",".join(dtypes), "--sizes", "1001"]
    skews = ("even", "1:2:5", "one-owner", "zeros") if name in SKEWED else ("even",)
    words += ["--skew", ",".join(skews)] if name in SKEWED else []
    done = bench(name, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{ranks} ranks on 1 host" in done.stdout
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()]
    if name == "barrier":
        assert [(row["column"], row["bytes"], row["wrong_ranks"]) for row in rows] == [
            ("plain", 0, None)
        ]
        return
    assert {(row["dtype"], row["skew"]) for row in rows} == {
        (dtype, skew) for dtype in dtypes for skew in skews
    }
    assert {row["count"] for row in rows} == {250, 500} - ({250} if name in SKEWED else set())
    for row in rows:
        assert row["wrong_ranks"] == (None if row["column"] == "limit" and name in SUMS else 0), row
        assert row["algbw_gb_s"] == pytest.approx(row["bytes"] / row["ms"] * 1e-6, rel=0.05)
        assert row["ms_min"] <= row["ms"] <= row["ms_p95"]
        assert row["count"] == sum(row["counts"])
    assert {row["column"] for row in rows} == {"plain", "window", "limit"}
    lines = [line for line in done.stdout.splitlines() if "|    ok |" in line]
    assert len(lines) == 2 * len(rows) / 3


def test_several_numbers_of_ranks_and_one_buffer(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "times.png"
    words = ["--quick", "--sizes", "100", "--buffers", "window", "--iterations", "1"]
    done = bench("send_recv", *words, "--ranks", "2,3", "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    heads = [line for line in done.stdout.splitlines() if line.startswith("###")]
    assert heads == [f"### Send and Recv, {ranks} ranks on 1 host" for ranks in (2, 3)]
    assert done.stdout.count("|  window |") == 2
    assert "|   plain |" not in done.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")


def measure_all(rank: int, store: str) -> dict[str, list[dict[str, Any]]]:
    """A point of each collective beside gloo."""
    found = {}
    with collops.init() as work, collops.init(comm_domain="meeting") as meeting:
        peers = None
        for name in COLLECTIVES:
            operator = load(name)
            words = [] if name == "barrier" else ["--sizes", "2k"]
            options = parse(operator, ["--quick", "--compare", "gloo", *words])
            options.launched = 2
            points = tuple(operator.points(options))
            request = Request(
                operator=name, points=points, iterations=1, threads=1, own=(), peers=options.peers
            )
            peers = peers or Peers(request, operator, store, rank, work.size)
            given = request, work, meeting.barrier, peers
            found[name] = MeasuredPoint(operator, points[0], *given).run()[-1]["columns"]
        peers.close()
    return found


def test_gloo_has_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    [found, _] = run_ranks(measure_all, 2, f"file://{tmp_path}/store", timeout=patience(100))
    for name, rows in found.items():
        gloo = [row for row in rows if row["column"].startswith("gloo")]
        assert gloo, name
        wrong = None if name == "barrier" else 0
        assert [row["wrong_ranks"] for row in gloo] == [wrong] * len(gloo), name


def measure_spoiled(rank: int, spoiled: str) -> tuple[list[dict[str, Any]], list[bool]]:
    """Measures a point where rank 1 spoils the last element of the result of one variant.

    Returns:
        The records, and whether the other variant's result was poisoned before each of its calls.
    """
    reduce = load("all_reduce")
    point = CollectivePoint(dtype="f16", size=14, skew="even", counts=(3, 4))
    request = Request(
        operator=reduce.name, points=(point,), iterations=2, threads=1, own=reduce.own, peers=()
    )
    kind: Any = reduce.variants
    plain = kind.own
    poisoned: list[bool] = []

    def own(self: Any, key: str) -> Any:
        variant = plain(self, key)
        if key == "plain":
            numbers = variant.result.view(np.float16)
            look = ("look", lambda: poisoned.append(bool(np.isnan(numbers).all())))
            variant.steps.insert(0, look)
        if key == spoiled and rank == 1:
            [(name, step)] = variant.steps
            last = variant.result[-1:]
            variant.steps = [(name, step), ("spoil", lambda: np.add(last, 1, out=last))]
        return variant

    kind.own = own
    with collops.init() as work, collops.init(comm_domain="meeting") as meeting:
        peers = Peers(request, reduce, "", rank, work.size)
        records = MeasuredPoint(reduce, point, request, work, meeting.barrier, peers).run()
        return records, poisoned


@pytest.mark.parametrize("spoiled", ["window", "nothing"])
def test_a_wrong_result_is_printed_and_is_the_exit_status(
    spoiled: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [(records, poisoned), _] = run_ranks(measure_spoiled, 2, spoiled)
    assert poisoned == [True, *[False] * num_rewrites(2, 10), True]
    monkeypatch.setattr(command, "_records", lambda *_: iter(records))
    status = command.main("all_reduce", ["--quick", "--sizes", "64"])
    lines = capsys.readouterr().out.splitlines()
    wrong = [line for line in lines if "| WRONG |" in line]
    assert (status, len(wrong)) == ((1, 1) if spoiled == "window" else (0, 0))
    assert all("|  window |" in line for line in wrong)
    assert sum("|    ok |" in line for line in lines) == 2 - len(wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("all_gather_v --ranks 1", "--ranks 1: at least 2 are needed"),
        (
            "all_gather_v --sizes 1t",
            "--sizes: a number of bytes of 1 or more, with or without",
        ),
        ("all_gather_v --sizes 0k", "k, m or g, is needed, got '0k'"),
        ("all_gather_v --skew odd", "--skew: 'odd' is not one of even, one-owner, zeros or shares"),
        ("all_gather_v --skew 3:x", "--skew: a whole number of 1 or more is needed, got 'x'"),
        ("all_gather_v --dtype f64", "'f64' is not one of f32/float32, bf16/bfloat16"),
        ("all_gather_v --buffers pinned", "--buffers: 'pinned' is not one of plain, window"),
        (
            "all_gather_v --peers numpy",
            "'numpy' is not one of mpi, gloo, ucx, ucx_perftest, iperf3",
        ),
        ("all_gather_v --rank-table /nowhere/ranks.json", "/nowhere/ranks.json"),
        ("all_gather --skew even", "unrecognized arguments: --skew even"),
        ("all_reduce --sweep", "unrecognized arguments: --sweep"),
        ("all_to_all --sizes 4", "--sizes 4: fewer than one element of f32 for each rank"),
        ("barrier --sizes 4", "unrecognized arguments: --sizes 4"),
    ],
)
def test_a_wrong_value_is_one_clear_line(arguments: str, message: str) -> None:
    done = forked_main.run(main, ["bench", *arguments.split()])
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_one_clock_the_slowest_ranks_own_call_counts() -> None:
    # [ranks, iterations, begin, end, part, part, 0, 0]; rank 1's clock is 100 s ahead
    times = np.array([[[0.0, 4.0, 4, 0, 0, 0]], [[100.0, 103.0, 1, 2, 0, 0]]])
    assert together(times).tolist() == [103]
    assert together(times, one_clock=False).tolist() == [4]
    assert typical_parts(times, one_clock=False)[:2].tolist() == [4, 0]


def test_a_variant_is_called_several_times_and_a_program_measures_itself() -> None:
    called: list[int] = []
    cores = os.sched_getaffinity(0)
    some = frozenset(sorted(cores)[:1])
    seen: list[set[int]] = []

    def step() -> None:
        called.append(1)
        seen.append(os.sched_getaffinity(0))
        time.sleep(0.005)

    variants = [
        Variant("often", "often", [("move", step)], calls=5, cores=some),
        Variant("program", "program", [], measure=partial(float, 0.25)),
    ]
    times = interleave(variants, 2, lambda x: None, lambda: None)
    assert len(called) == 5 * 4  # two rounds do not count
    assert set(map(frozenset, seen)) == {some}
    assert os.sched_getaffinity(0) == cores
    assert (times[1, :, 1] - times[1, :, 0]).tolist() == [0.25, 0.25]
    lengths = times[0, :, 1] - times[0, :, 0]
    assert np.allclose(times[0, :, 2], lengths, rtol=0.5, atol=1e-6)


def test_a_turn_of_several_calls_has_one_before_them_that_does_not_count() -> None:
    called: list[str] = []
    written: list[Any] = []
    variants = [
        Variant(key, key, [("move", partial(called.append, key))], x=np.zeros(1)) for key in "ab"
    ]
    times = interleave(variants, 3, written.append, lambda: None, burst=2)
    assert times.shape[:2] == (2, 6)
    assert (times[:, :, 1] > times[:, :, 0]).all()
    assert {"".join(called[i : i + 3]) for i in range(0, 30, 3)} == {"aaa", "bbb"}
    assert len(called) == len(written) == 2 * num_rewrites(3, 2) == 30
    assert num_rewrites(3, 1) == 5
