"""`collops bench all_gather_v` and `reduce_scatter_v`: output, refusals, rates, and their parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import forked_main
import numpy as np
import own_output
import pytest

from collops.bench.arguments import parse
from collops.bench.blocks.points import BlockPoint, make_points
from collops.bench.blocks.report import compare, summary
from collops.bench.hosts import Hosts
from collops.bench.measure import interleave, together, typical_parts
from collops.bench.operators import load
from collops.bench.peers.link_programs import iperf_seconds, perftest_seconds
from collops.bench.rank_program import check_same
from collops.bench.request import Request
from collops.bench.start import Start, start_of
from collops.bench.variant import Variant
from collops.cli import main
from collops.launch.rank_table import make_rank_table
from collops.testing import RankErrors, run_ranks

BLOCKS = ("all_gather_v", "reduce_scatter_v")


def collops(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return own_output.run(
        [sys.executable, "-m", "collops.cli", *arguments],
        capture_output=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("name", BLOCKS)
def test_every_column_is_right(name: str, tmp_path: Path) -> None:
    rows_file = tmp_path / "rows.jsonl"
    done = collops(
        *("bench", name, "--quick", "--dtype", "f32,bf16", "--ranks", "3", "--peers", "none"),
        *("--rows-share", "1:2:5", "--json", str(rows_file), "--iterations", "1"),
    )
    assert done.returncode == 0, done.stderr
    assert "### Summary" in done.stdout
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()]
    assert {(row["dtype"], row["spread"], row["bytes_per_rank"]) for row in rows} == {
        (dtype, spread, size)
        for dtype in ("f32", "bf16")
        for spread in ("even", "uneven")
        for size in (1 << 10, 64 << 10)
    }
    for row in rows:
        assert row["wrong_ranks"] == 0, row
        assert row["placement"] == "3 ranks on 1 host"
        moved = sum(row["counts"]) * (4 if row["dtype"] == "f32" else 2)
        assert abs(moved - 3 * row["bytes_per_rank"]) < 4
        assert row["gb_s"] == pytest.approx(moved / row["ms"] * 1e-6, rel=0.05)
        assert len(set(row["counts"])) == (1 if row["spread"] == "even" else 3)
    assert {"own", "window"} <= {row["column"] for row in rows}


@pytest.mark.parametrize("name", BLOCKS)
def test_gloo_has_the_same_results(name: str) -> None:
    pytest.importorskip("torch")
    done = collops("bench", name, "--quick", "--peers", "gloo", "--sizes", "1k")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| gloo ")]
    assert len(lines) >= 6
    assert all(line.endswith("ok |") for line in lines)
    assert any("padded" in line or "all_reduce" in line for line in lines)


def test_ranks_of_collops_run_measure_together() -> None:
    words = ["bench", "all_gather_v", "--quick", "--peers", "none", "--sizes", "1k"]
    done = collops("run", "-n", "3", "-m", "collops.cli", *words, COLLOPS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert "[0] ### AllGatherV, 3 ranks on 1 host, f32, 1 KiB per rank, uneven" in done.stdout
    assert [line for line in done.stdout.splitlines() if not line.startswith("[0]")] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--ranks 1", "--ranks 1: at least 2 are needed"),
        ("--sizes 1g", "--sizes: a whole number of 1 or more is needed, got '1g'"),
        ("--sizes 16", "--sizes: at least 64 bytes are needed, got '16'"),
        ("--counts odd", "--counts: 'odd' is none of even, uneven"),
        ("--peers numpy", "'numpy' is none of mpi, gloo, ucx_perftest, iperf3"),
        ("--dtype f64", "'f64' is none of f32, bf16, f16"),
        ("--rank-table /nowhere/ranks.json", "/nowhere/ranks.json"),
        ("--sweep", "unrecognized arguments: --sweep"),
    ],
)
def test_a_wrong_value_is_one_clear_line(arguments: str, message: str) -> None:
    done = forked_main.run(main, ["bench", "all_gather_v", *arguments.split()])
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_ranks_of_a_table_are_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "ranks.json"
    table.write_text(make_rank_table(["node-a", "node-b"], 2))
    operator = load("all_gather_v")
    options = parse(operator, ["--rank-table", str(table)])
    for name, here in (("node-a", ["0", "1"]), ("node-b", ["2", "3"])):
        monkeypatch.setenv("COLLOPS_SERVER_ID", name)
        start = start_of(operator, options)
        assert [each["COLLOPS_RANK"] for each in start.environments] == here
        assert (start.size, start.shows) == (4, name == "node-a")
    options.launched = 4
    assert {point.ranks for point in make_points(options)} == {4}
    options.ranks = 2
    with pytest.raises(ValueError, match="--ranks 2: 4 ranks are started"):
        make_points(options)
    done = forked_main.run(
        main,
        ["bench", "all_gather_v", "--rank-table", str(table), "--mpi", "/opt/mpi"],
        env={"COLLOPS_SERVER_ID": "node-a"},
    )
    assert done.returncode == 2
    assert "--mpi starts ranks itself" in done.stderr


def test_a_rank_of_a_launcher_needs_the_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    gather, linear = load("all_gather_v"), load("linear_parallel")
    monkeypatch.setenv("COLLOPS_RANK", "1")
    monkeypatch.delenv("COLLOPS_RANK_SIZE", raising=False)
    with pytest.raises(ValueError, match="COLLOPS_RANK_SIZE must be a whole number, got ''"):
        start_of(gather, parse(gather, []))
    monkeypatch.setenv("COLLOPS_RANK_SIZE", "2")
    assert start_of(gather, parse(gather, [])) == Start(2, rank=1)
    assert start_of(linear, parse(linear, [])) == Start()


def request_of(sizes: tuple[int, ...]) -> Request:
    points = tuple(BlockPoint(dtype="f32", size=s, spread="even", counts=(s, s)) for s in sizes)
    return Request(
        operator="all_gather_v", points=points, iterations=1, threads=1, own=("own",), peers=()
    )


def test_hosts_with_other_arguments_are_told_so() -> None:
    import collops

    def check(rank: int, sizes: list[tuple[int, ...]]) -> str:
        with collops.init() as comm:
            check_same(request_of(sizes[rank]), comm)
            hosts = Hosts.of(comm)
            return f"{hosts.text()} {hosts.one_clock}"

    assert run_ranks(check, 2, [(64, 128), (64, 128)]) == ["2 ranks on 1 host True"] * 2
    with pytest.raises(RankErrors) as failed:
        run_ranks(check, 2, [(64, 128), (64,)])
    for rank in range(2):
        assert "rank 1 was given other arguments than rank 0" in str(failed.value.errors[rank])


def test_hosts_are_named_by_their_ranks() -> None:
    hosts = Hosts((0, 1, 0, 2), one_clock=False)
    assert hosts.text() == "4 ranks on 3 hosts (2 + 1 + 1)"
    assert hosts.ranks(0) == [0, 2]


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
    assert np.allclose(times[0, :, 2], lengths, rtol=0.2, atol=1e-6)


def row(column: str, ms: float, moved_bytes: int) -> dict[str, Any]:
    point = {"placement": "2 ranks on 2 hosts (1 + 1)", "dtype": "f32", "bytes_per_rank": 1 << 20}
    return {**point, "spread": "even", "column": column, "ms": ms, "moved_bytes": moved_bytes}


def test_rates_are_bytes_of_both_directions_and_ratios_are_per_byte() -> None:
    given = [
        row("own", 1.0, 2_000_000),
        row("exchange", 0.8, 2_000_000),
        row("ucx_tag_bw", 1.0, 1_000_000),
        row("ucx_tag_lat", 0.5, 1_000_000),
        row("gloo_all_gather", 4.0, 2_000_000),
        row("gloo_all_to_all", 3.0, 2_000_000),
    ]
    others = {each["column"]: each for each in given}
    rows = [compare(each, others) for each in given]
    assert [each["gb_s"] for each in rows] == [2.0, 2.5, 1.0, None, 0.5, 0.6666667]
    assert [each["to_own"] for each in rows][:3] == [1.0, 0.8, 2.0]
    head, [line] = summary([rows])
    found = dict(zip(head, line, strict=True))
    assert found["of exchange"] == "0.800"
    assert found["of one-way tag_bw"] == "2.000"
    assert found["gloo / collops"] == "3.00"
    assert found["one-way latencies"] == "2.00"
    _, [alone] = summary([rows[:1]])
    assert alone[3:] == ["-", "-", "-", "-"]


def test_what_programs_print_is_read() -> None:
    text = (
        "| Stage | # iterations | 50.0%ile | average |\n"
        "[thread 0]               126   4000.290  3999.325  3999.325  0.24  0.24  250  250\n"
        "Final:                  2000      7.772   221.726   695.859  4.40  1.40  4510  1437\n"
    )
    assert perftest_seconds(text, 0) == pytest.approx(7.772e-6)
    assert perftest_seconds(text, 1) == pytest.approx(695.859e-6)
    final = "2000 7.772 221.726 695.859 4.40 1.40 4510 1437\n"  # with -f
    assert perftest_seconds(final, 0) == pytest.approx(7.772e-6)
    with pytest.raises(RuntimeError, match="no result: 'no route'"):
        perftest_seconds("no route\n", 0)
    text = json.dumps({"end": {"sum_received": {"bits_per_second": 8e9}}})
    assert iperf_seconds(text, 1000) == pytest.approx(1e-6)
