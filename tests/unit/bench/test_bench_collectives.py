"""`collops bench` of each collective: runs and wrong results; what every benchmark refuses."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collops.bench import command, limit, measure
from collops.bench.collectives import CollectivePoint
from collops.bench.measure import Variant
from collops.bench.operators import OPERATORS, load
from collops.bench.options import parse
from collops.cli import main
from collops.testing import run_ranks
from patience import patience
from tests import programs
from tests.unit.bench.benches import bench, measurement, rows_of

COLLECTIVES = [name for name in OPERATORS if load(name).several_hosts]
SKEWED = ("all_gather_v", "reduce_scatter_v", "all_to_all_v")
SUMS = ("all_reduce", "reduce_scatter", "reduce_scatter_v")


def measure_each(rank: int, words: dict[str, list[str]], peers: str, store: str) -> dict[str, Any]:
    """The rows of every point of each collective, beside a library if one is named."""
    found = {}
    with measurement() as made:
        for name, given in words.items():
            operator = load(name)
            options = parse(operator, ["--quick", "--peers", peers, *given])
            options.launched = int(os.environ["COLLOPS_RANK_SIZE"])
            points = operator.points(options)
            records = [made(operator, point, options.peers, store).run()[-1] for point in points]
            found[name] = [row for record in records for row in operator.rows(record)]
    return found


@pytest.fixture
def few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each point ranks measure how long a barrier takes, and a word between two cores; here
    nobody reads that, and beside other tests each look waits for a core."""
    monkeypatch.setattr(measure, "_PLACE_BARRIERS", 2)
    monkeypatch.setattr(measure, "_PLACE_LOOKS", 1)
    monkeypatch.setattr(limit, "_LOOKS", 1)
    monkeypatch.setattr(limit, "_TRIPS", 2)


@pytest.mark.usefixtures("few_looks")
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


@pytest.mark.usefixtures("few_looks")
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
    rows = rows_of(rows_file)
    # An algorithm is named, though none is forced.
    assert [(row["ranks"], row["column"], row["algorithm"]) for row in rows] == [
        (ranks, *column) for ranks in (2, 3) for column in (("window", "direct"), ("limit", None))
    ]
    assert "algorithm" not in done.stdout
    heads = [line for line in done.stdout.splitlines() if line.startswith("###")]
    assert heads == [f"### Send and Recv, {ranks} ranks on 1 host" for ranks in (2, 3)]
    assert done.stdout.count("|  window |") == 2
    assert "|   plain |" not in done.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    *others, issue = done.stdout.splitlines()
    assert f"plot: {plot}" in others[-4:]
    assert issue.startswith("For an issue: collops bench send_recv --quick")
    assert "numpy" in issue


@pytest.mark.parametrize(
    ("tuning", "taken", "chosen"),
    [
        ("", ["1 step", "1 step", "2 steps"], "1 step at 1k, 256k; 2 steps at 512k"),
        (
            "all_reduce_one_step_2=1k,all_reduce_one_step=1g",
            ["1 step", "2 steps", "2 steps"],
            "1 step at 1k; 2 steps at 256k, 512k",
        ),
    ],
)
def test_each_algorithm_is_forced_and_the_choice_is_named(
    tuning: str, taken: list[str], chosen: str, tmp_path: Path
) -> None:
    rows_file = tmp_path / "rows.jsonl"
    words = "all_reduce --algorithms --sizes 1k,256k,512k --quick --iterations 1 --json".split()
    done = bench(*words, str(rows_file), env={**os.environ, "COLLOPS_TUNING": tuning})
    assert done.returncode == 0, done.stderr
    rows = rows_of(rows_file)
    keys = ["1 step plain", "2 steps plain", "1 step window", "2 steps window"]
    forced = {key: key.rpartition(" ")[0] for key in keys}
    for size, name in zip((1 << 10, 256 << 10, 512 << 10), taken, strict=True):
        found = {row["column"]: row["algorithm"] for row in rows if row["bytes"] == size}
        assert found == {"plain": name, "window": name, **forced, "limit": None}
    assert {row["wrong_ranks"] for row in rows if row["algorithm"]} == {0}
    assert "all_reduce: 2 algorithms. 1 step: every rank reads all vectors" in done.stdout
    lines = done.stdout.splitlines()
    assert [sum(f" {key} |" in line for line in lines) for key in keys] == [3] * 4
    assert len({len(line) for line in lines if line.startswith("|")}) == 1
    assert f"The library chose {chosen}." in lines


@pytest.mark.usefixtures("few_looks")
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
    poisoned: list[bool] = []
    with measurement() as made:
        measured = made(reduce, point)
        plain = measured._variants.own

        def own(key: str) -> Variant:
            variant = plain(key)
            result: Any = variant.result
            if key == "plain":
                numbers = result.view(np.float16)
                look = ("look", lambda: poisoned.append(bool(np.isnan(numbers).all())))
                variant.steps.insert(0, look)
            if key == spoiled and rank == 1:
                last = result[-1:]
                variant.steps.append(("spoil", lambda: np.add(last, 1, out=last)))
            return variant

        measured._variants.own = own  # type: ignore[method-assign]
        return measured.run(), poisoned


@pytest.mark.parametrize("spoiled", ["window", "nothing"])
def test_a_wrong_result_is_printed_and_is_the_exit_status(
    spoiled: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [(records, poisoned), _] = run_ranks(measure_spoiled, 2, spoiled)
    assert poisoned == [True, *[False] * (2 + 1) * 11, True]
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
        ("all_gather_v --sizes 0k", "number of bytes of 1 or more, with or without k, m or g, is"),
        ("all_gather_v --skew odd", "--skew: 'odd' is not one of even, one-owner, zeros or shares"),
        ("all_gather_v --skew 3:x", "--skew: a whole number of 1 or more is needed, got 'x'"),
        ("all_gather_v --dtype f64", "'f64' is not one of f32/float32, bf16/bfloat16"),
        ("all_gather_v --peers numpy", "not one of mpi, gloo, ucx, ucx_perftest, iperf3"),
        ("all_gather_v --rank-table /nowhere/ranks.json", "/nowhere/ranks.json"),
        ("all_gather --skew even", "unrecognized arguments: --skew even"),
        ("all_to_all --sizes 4", "--sizes 4: fewer than one element of f32 for each rank"),
        ("barrier --sizes 4", "unrecognized arguments: --sizes 4"),
        ("linear_parallel --ranks 3", "--ranks 3: type 4's grid 2x2 has 4 ranks"),
        ("linear_parallel --ranks 1 --type 2", "--ranks 1: at least 2 are needed"),
        ("linear_parallel --grid 1x1", "at least 2 ranks"),
        ("linear_parallel --shapes 1,2", "--shapes: at least 3 numbers"),
        ("linear_parallel --shapes 1,2,3,4", "--shapes: M,K,N;M,K,N is needed"),
        ("linear_parallel --sweep --shapes 1,2,3;4,5,6", "takes K and N of one shape, got 2"),
        ("linear_parallel --algorithms", "unrecognized arguments: --algorithms"),
        ("linear_parallel --iterations 0", "--iterations: a whole number of 1 or more"),
        ("linear_parallel --mpi /nowhere", "--mpi /nowhere: there is no /nowhere/bin/mpiexec"),
        ("linear_parallel --plot parts.txt", "the name must end in .png"),
        ("linear_parallel --plot /nowhere/parts.png", "there is no folder /nowhere"),
        ("linear_parallel --json /nowhere/rows", "/nowhere/rows"),
    ],
)
def test_a_wrong_value_is_one_clear_line(arguments: str, message: str) -> None:
    done = programs.run_forked(main, ["bench", *arguments.split()])
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_terminal_shows_which_point_is_measured() -> None:
    ours, theirs = pty.openpty()
    words = "bench all_reduce --quick --sizes 64,128 --iterations 1".split()
    done = subprocess.run(
        [sys.executable, "-m", "collops", *words],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        timeout=patience(100),
    )
    os.close(theirs)
    drawn = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "] 0/2, " in drawn and "] 1/2, " in drawn
    assert drawn.endswith("\r\x1b[K")


def test_a_dtype_may_have_any_of_its_names() -> None:
    for words in ("f32,bf16", "float32,bfloat16", "fp32,BF16", "float,bf16,f32"):
        assert parse(load("all_gather_v"), ["--dtype", words]).dtype == ("f32", "bf16")


def test_what_the_extra_installs_is_imported_only_where_it_was_asked_for() -> None:
    text = "import sys; from collops.bench import command, ranks, tune, programs\n"
    text += "print({'matplotlib', 'mpi4py', 'torch'} & {*sys.modules})"
    done = programs.run([sys.executable, "-c", text], capture_output=True)
    assert (done.returncode, done.stdout) == (0, "set()\n")
