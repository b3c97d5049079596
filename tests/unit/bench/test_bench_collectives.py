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

import numpy as np
import pytest

import collops
from collops.bench import command, measure
from collops.bench.collectives import CollectivePoint
from collops.bench.measure import Rounds, Variant, interleave, together, typical_parts
from collops.bench.operator import Request
from collops.bench.operators import OPERATORS, load
from collops.bench.options import parse
from collops.bench.peers import Peers
from collops.bench.variants import MeasuredPoint
from collops.cli import main
from collops.testing import run_ranks
from patience import patience
from tests import programs

COLLECTIVES = [name for name in OPERATORS if load(name).several_hosts]
SKEWED = ("all_gather_v", "reduce_scatter_v", "all_to_all_v")
SUMS = ("all_reduce", "reduce_scatter", "reduce_scatter_v")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return programs.run([sys.executable, "-m", "collops", "bench", *arguments], capture_output=True)


def measure_each(rank: int, words: dict[str, list[str]], peers: str, store: str) -> dict[str, Any]:
    """The rows of every point of each collective, beside a library if one is named."""
    found = {}
    with collops.init() as work, collops.init(comm_domain="meeting") as meeting:
        loaded = None
        for name, given in words.items():
            operator = load(name)
            options = parse(operator, ["--quick", "--iterations", "1", "--peers", peers, *given])
            options.launched = work.size
            points = tuple(operator.points(options))
            request = Request(
                operator=name, points=points, iterations=1, threads=1, own=operator.own,
                peers=options.peers,
            )  # fmt: skip
            loaded = loaded or Peers(request, operator, store, rank, work.size)
            common = request, work, meeting.barrier, loaded
            records = [MeasuredPoint(operator, point, *common).run()[-1] for point in points]
            found[name] = [row for record in records for row in operator.rows(record)]
        if loaded is not None:
            loaded.close()
    return found


@pytest.fixture
def few_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each point ranks measure how long a barrier takes; here nobody reads that."""
    monkeypatch.setattr(measure, "_PLACE_BARRIERS", 2)
    monkeypatch.setattr(measure, "_PLACE_LOOKS", 1)


@pytest.mark.usefixtures("few_barriers")
def test_every_call_is_right() -> None:
    dtypes = ["--dtype", "f32,bf16", "--sizes", "1001"]
    words = {name: [] if name == "barrier" else dtypes for name in COLLECTIVES}
    [found, _] = run_ranks(measure_each, 2, words, "none", "", timeout=patience(100))
    [barrier] = found.pop("barrier")
    assert (barrier["column"], barrier["bytes"], barrier["wrong_ranks"]) == ("plain", 0, None)
    for name, rows in found.items():
        check_rows(name, rows)
        assert {row["dtype"] for row in rows} == {"f32", "bf16"}
        assert {row["count"] for row in rows} == {250, 500}


@pytest.mark.usefixtures("few_barriers")
def test_every_uneven_call_is_right() -> None:
    skews = ("even", "1:2:5", "one-owner", "zeros")
    words = ["--dtype", "f16", "--sizes", "1001", "--skew", ",".join(skews)]
    given = dict.fromkeys(SKEWED, words)
    [found, *_] = run_ranks(measure_each, 3, given, "none", "", timeout=patience(100))
    for name, rows in found.items():
        check_rows(name, rows)
        assert {row["skew"] for row in rows} == {*skews}
        assert {row["placement"] for row in rows} == {"3 ranks on 1 host"}


def check_rows(name: str, rows: list[dict[str, Any]]) -> None:
    assert {row["column"] for row in rows} == {"plain", "window", "limit"}
    for row in rows:
        assert row["wrong_ranks"] == (None if row["column"] == "limit" and name in SUMS else 0), row
        assert row["algbw_gb_s"] == pytest.approx(row["bytes"] / row["ms"] * 1e-6, rel=0.05)
        assert row["ms_min"] <= row["ms"] <= row["ms_p95"]
        assert row["count"] == sum(row["counts"])


def test_several_numbers_of_ranks_and_one_buffer(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "times.png"
    rows_file = tmp_path / "rows.jsonl"
    words = ["--quick", "--sizes", "100", "--buffers", "window", "--iterations", "1"]
    words += ["--json", str(rows_file), "--plot", str(plot)]
    done = bench("send_recv", *words, "--ranks", "2,3")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()]
    assert [(row["ranks"], row["column"]) for row in rows] == [
        *((2, "window"), (2, "limit"), (3, "window"), (3, "limit"))
    ]
    heads = [line for line in done.stdout.splitlines() if line.startswith("###")]
    assert heads == [f"### Send and Recv, {ranks} ranks on 1 host" for ranks in (2, 3)]
    assert done.stdout.count("|  window |") == 2
    assert "|   plain |" not in done.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("few_barriers")
def test_gloo_has_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = {name: [] if name == "barrier" else ["--sizes", "2k"] for name in COLLECTIVES}
    store = f"file://{tmp_path}/store"
    [found, _] = run_ranks(measure_each, 2, words, "gloo", store, timeout=patience(100))
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
    assert poisoned == [True, *[False] * (2 + 2) * 11, True]
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
    done = programs.run_forked(main, ["bench", *arguments.split()])
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
    times = interleave(variants, Rounds(2), lambda x: None, lambda: None)
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
    times = interleave(variants, Rounds(3, 2), written.append, lambda: None)
    assert times.shape[:2] == (2, 6)
    assert (times[:, :, 1] > times[:, :, 0]).all()
    assert {"".join(called[i : i + 3]) for i in range(0, 30, 3)} == {"aaa", "bbb"}
    assert len(called) == len(written) == 30


def test_no_round_begins_after_the_time_that_the_ranks_agree_on() -> None:
    called: list[int] = []
    variants = [Variant("a", "a", [("move", partial(called.append, 1))])]
    rounds = Rounds(100, most_s=1.0)
    late = iter([0.5, 0.9, 1.1])
    times = interleave(variants, rounds, lambda x: None, lambda: None, lambda _: next(late))
    assert (times.shape[1], len(called)) == (12, 14)
