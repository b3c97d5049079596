"""`collops bench --algorithms`: each algorithm is forced, and the one that is taken is named."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import collops
from collops.bench.collectives import Algorithm, chosen, described
from collops.bench.operator import Request
from collops.bench.operators import OPERATORS, load
from collops.bench.options import parse
from collops.bench.peers import Peers
from collops.core import core
from collops.testing import run_ranks
from tests import programs

SIZES = (1 << 10, 256 << 10, 512 << 10)
FORCED = ["1 step plain", "2 steps plain", "1 step window", "2 steps window"]
OTHERS = [name for name in OPERATORS if load(name).several_hosts and name != "all_reduce"]


def bench(*arguments: str, tuning: str = "") -> str:
    words = [sys.executable, "-m", "collops", "bench", *arguments, "--quick"]
    env = {**os.environ, "COLLOPS_TUNING": tuning}
    done = programs.run([*words, "--iterations", "1"], capture_output=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.mark.parametrize(
    ("tuning", "taken"),
    [
        ("", ["1 step", "1 step", "2 steps"]),
        ("all_reduce_one_step_2=1k,all_reduce_one_step=1g", ["1 step", "2 steps", "2 steps"]),
    ],
)
def test_the_table_has_each_algorithm_and_the_choice(
    tuning: str, taken: list[str], tmp_path: Path
) -> None:
    rows_file = tmp_path / "rows.jsonl"
    words = ["all_reduce", "--algorithms", "--sizes", "1k,256k,512k", "--json", str(rows_file)]
    out = bench(*words, tuning=tuning)
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()]
    by_size = {size: [row for row in rows if row["bytes"] == size] for size in SIZES}
    for size, name in zip(SIZES, taken, strict=True):
        found = {row["column"]: row["algorithm"] for row in by_size[size]}
        forced = {key: key.rpartition(" ")[0] for key in FORCED}
        assert found == {"plain": name, "window": name, **forced, "limit": None}
    assert {row["wrong_ranks"] for row in rows if row["algorithm"]} == {0}
    assert "all_reduce: 2 algorithms. 1 step: every rank reads all vectors" in out
    lines = out.splitlines()
    assert [sum(f" {key} |" in line for line in lines) for key in FORCED] == [3] * 4
    table = [line for line in lines if line.startswith("|")]
    assert len({len(line) for line in table}) == 1
    sizes = dict.fromkeys(taken, "")
    for name, text in zip(taken, ("1k", "256k", "512k"), strict=True):
        sizes[name] += f", {text}" if sizes[name] else text
    said = "; ".join(f"{name} at {texts}" for name, texts in sizes.items())
    assert f"The library chose {said}." in lines
    assert lines[-1].startswith("For an issue: collops ")


def test_without_the_option_the_table_is_as_before(tmp_path: Path) -> None:
    rows_file = tmp_path / "rows.jsonl"
    out = bench("all_reduce", "--sizes", "1k", "--json", str(rows_file))
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()]
    found = [(row["column"], row["algorithm"]) for row in rows]
    assert found == [("plain", "1 step"), ("window", "1 step"), ("limit", None)]
    assert "algorithm" not in out
    assert "chose" not in out


def copied_bytes(rank: int, size: int) -> dict[str, int]:
    """What a call of each variant of AllReduce copies on this rank."""
    reduce = load("all_reduce")
    options = parse(reduce, ["--quick", "--algorithms", "--sizes", str(size)])
    options.launched = 2
    [point] = reduce.points(options)
    request = Request(
        operator=reduce.name, points=(point,), iterations=1, threads=1, own=reduce.own, peers=()
    )
    with collops.init() as work:
        variants = reduce.variants(point, work, Peers(request, reduce, "", rank, 2), 1)
        found = {}
        for key in variants.own_keys(reduce.own):
            variant = variants.own(key)
            before = core().copied_bytes()
            variant.run()
            found[key] = core().copied_bytes() - before
        variants.kept.close()
    return found


@pytest.mark.parametrize("size", [256 << 10, (256 << 10) + 8])
def test_each_algorithm_is_really_taken(size: int) -> None:
    for found in run_ranks(copied_bytes, 2, size):
        # One step reads vectors of a window in place. Two steps gather the sums in plain memory.
        assert (found["1 step window"], found["1 step plain"]) == (0, size)
        assert found["2 steps window"] >= size // 2
        assert found["2 steps plain"] > size
        name = "1 step" if size <= 256 << 10 else "2 steps"
        for buffer in ("plain", "window"):
            assert found[buffer] == found[f"{name} {buffer}"]


def test_the_others_say_that_they_have_one_algorithm() -> None:
    for name in OTHERS:
        kind: Any = load(name).variants
        assert (len(kind.shm), len(kind.ucx)) == (1, 1), name
        row = {"placement": "", "mpi": "", "one_clock": True, "backend": "shm", "bench": name}
        row |= {"threads": 1, "isa": "", "algorithms": described(kind.shm)}
        assert f"\n\n{name}: one algorithm, direct: " in load(name).head(row)
        usual = {"column": "plain", "algorithm": "direct"}
        assert load(name).foot([[usual]]) == ""
    assert len(load("all_reduce").variants.ucx) == 1


def test_linear_parallel_has_engines_and_no_such_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parse(load("linear_parallel"), ["--algorithms"])
    assert "unrecognized arguments: --algorithms" in capsys.readouterr().err


def test_algorithms_are_described_and_the_choice_is_by_size() -> None:
    assert described([Algorithm("direct", "x")]) == "one algorithm, direct: x."
    two = [Algorithm("a", "x", "size=1"), Algorithm("b", "y", "size=2")]
    assert described(two) == "2 algorithms. a: x; b: y."
    rows = [{"algorithm": name, "bytes": size} for name, size in (("a", 9), ("a", 1024), ("b", 7))]
    assert chosen(rows) == "The library chose a at 9, 1k; b at 7."
