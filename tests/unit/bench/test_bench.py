"""The parts of the benchmarks: data, groups, times, memory, ratios, tables, launchers."""

from __future__ import annotations

import mmap
import os
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collops.bench.elements import Element, exact_density, fresh_memory
from collops.bench.measure import (
    Rounds,
    Variant,
    added_bytes,
    interleave,
    own_slowest,
    together,
    typical_parts,
)
from collops.bench.operators import load
from collops.bench.operators.linear_parallel import summary
from collops.bench.operators.linear_variants import LinearPoint, LinearVariants
from collops.bench.peers.mpi_launcher import find_mpis

_MIB = 1 << 20
LINEAR: Any = load("linear_parallel")


def point(**fields: Any) -> LinearPoint:
    common = {"type": 4, "grid": (2, 2), "dtype": "f32", "shape": (8, 4, 2), "shares": (3, 5)}
    return LinearPoint(**{**common, **fields})


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_data_is_whole_numbers_that_differ_by_seed_and_change_sign(dtype: str) -> None:
    element = Element(dtype)
    a, b = element.matrix(50, 40), element.matrix(50, 40)
    element.fill(a, (1, 0), 0.5)
    element.fill(b, (1, 1), 0.5)
    # bfloat16 is the upper half of float32.
    numbers = element.numbers(a) if dtype != "bf16" else (a.astype(np.uint32) << 16).view("f4")
    values, counts = np.unique(numbers, return_counts=True)
    assert values.tolist() == [-1, 0, 1]
    assert 400 < counts[1] - counts[0] - counts[2] + 1000 < 1600
    assert element.num_different(a, b) > 500
    before = a.copy()
    element.flip(a)
    assert element.num_different(a, before) == counts[0] + counts[2]  # 0 and -0 are equal
    element.flip(a)
    assert np.array_equal(a, before)


def test_sums_of_the_data_stay_where_bfloat16_is_exact() -> None:
    element = Element("f32")
    k = 4096
    x, weight = element.matrix(64, k), element.matrix(64, k)
    element.fill(x, (3,), exact_density("bf16", k, 2))
    element.fill(weight, (4,), 2 / 3)
    sums = element.numbers(x) @ element.numbers(weight).T
    assert 60 < np.abs(sums).max() <= 256


def test_memory_that_a_call_gives_back_counts_and_shared_memory_counts_apart() -> None:
    descriptor = os.memfd_create("shared")
    os.truncate(descriptor, 16 * _MIB)
    shared_memory = np.frombuffer(mmap.mmap(descriptor, 16 * _MIB), np.uint8)
    os.close(descriptor)

    def call() -> None:
        shared_memory[: 8 * _MIB] = 1
        # Gone when the call returns; the other half of its pages never exists.
        fresh_memory(64 * _MIB)[: 32 * _MIB] = 1

    found = added_bytes(call, lambda: None)
    if found is None:
        pytest.skip("this system does not tell how much memory a process had at most")
    assert 31 * _MIB < found[0] < 36 * _MIB
    assert 7 * _MIB < found[1] < 9 * _MIB


def test_times_are_those_of_all_ranks_together() -> None:
    # [ranks, iterations, begin, end, part, part, 0, 0]
    times = np.array(
        [
            [[0.0, 4.0, 1, 3, 0, 0], [10, 12, 1, 1, 0, 0], [20, 23, 1, 2, 0, 0]],
            [[1.0, 5.0, 3, 1, 0, 0], [10, 11, 0, 1, 0, 0], [20, 22, 1, 1, 0, 0]],
        ]
    )
    assert together(times).tolist() == [5, 2, 3]
    assert own_slowest(times).tolist() == [4, 2, 3]
    assert typical_parts(times)[:2].tolist() == [1, 2]  # the third round, rank 0
    # Rank 1's clock is 100 s ahead: the slowest rank's own call counts.
    times = np.array([[[0.0, 4.0, 4, 0, 0, 0]], [[100.0, 103.0, 1, 2, 0, 0]]])
    assert together(times).tolist() == [103]
    assert together(times, one_clock=False).tolist() == [4]
    assert typical_parts(times, one_clock=False)[:2].tolist() == [4, 0]


@pytest.mark.parametrize("burst", [1, 2])
def test_variants_run_in_turn_and_their_input_is_written_anew(burst: int) -> None:
    """With several calls in a turn one before them does not count."""
    seen: list[str] = []
    variants = [
        Variant(key, key, [("gather", partial(seen.append, key))], x=np.zeros(1)) for key in "abc"
    ]
    written: list[Any] = []
    times = interleave(variants, Rounds(4, burst), written.append, lambda: seen.append("meet"))
    calls = 1 if burst == 1 else burst + 1
    assert times.shape[:2] == (3, 4 * burst)
    assert len(written) == 18 * calls
    assert seen[::2] == ["meet"] * 18 * calls
    called = "".join(seen[1::2])
    rounds = [called[i : i + 3 * calls] for i in range(0, 18 * calls, 3 * calls)]
    for letters in rounds:
        assert sorted(letters[::calls]) == list("abc")
        assert letters == "".join(key * calls for key in letters[::calls])
    assert len(set(rounds)) > 1
    assert np.all(times[..., 1] >= times[..., 0])


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


def test_no_round_begins_after_the_time_that_the_ranks_agree_on() -> None:
    called: list[int] = []
    variants = [Variant("a", "a", [("move", partial(called.append, 1))])]
    rounds = Rounds(100, most_s=1.0)
    late = iter([0.5, 0.9, 1.1])
    times = interleave(variants, rounds, lambda x: None, lambda: None, lambda _: next(late))
    assert (times.shape[1], len(called)) == (12, 14)


def record(**changes: float) -> dict[str, Any]:
    """A record of a point as rank 0 writes it; `changes` are times in ms."""
    ms = {"fused_window": 11.0, "fused": 12.0, "unfused": 20.0, "gemm": 10.0, "peak": 8.0}
    ms = {**ms, "packed": 9.0, "gemm_packed": 8.4, "read": 4.0}
    columns = [
        {
            "column": key,
            "label": key,
            "ms": value,
            "ms_p10": value,
            "ms_p90": value,
            "parts_ms": {"all": value},
            "gflops": 100.0 if key == "peak" else 800.0 / value,
            "wrong_ranks": 0,
            "memory_mib": None,
        }
        for key, value in {**ms, **changes}.items()
    ]
    head = {"mpi": "", "type": 2, "grid": [2, 1], "dtype": "f32", "m": 8, "k": 4, "n": 2}
    more = {"gather_rows": [3, 5], "scatter_rows": [8], "threads": 1, "isa": "avx2"}
    return {**head, **more, "iterations": 3, "place_us": [1.0, 2.0], "columns": columns}


def test_ratios_are_to_the_product_alone_to_the_peak_and_to_the_fused_call() -> None:
    ways = {"mpi_alltoallv": 33.0, "gloo_isend_irecv": 50.0, "gloo_all_to_all": 44.0}
    rows = {row["column"]: row for row in LINEAR.rows(record(**ways))}
    assert rows["fused_window"]["to_gemm"] == 1.1
    assert rows["mpi_alltoallv"]["to_fused"] == 3.0
    assert rows["gemm"]["peak_fraction"] == 0.8
    assert rows["peak"]["to_gemm"] is None
    assert rows["packed"]["to_gemm"] == round(9 / 8.4, 4)
    assert rows["gemm_packed"]["to_limit"] == 1.05
    head, [line] = summary([list(rows.values())])
    assert line[head.index("packed GEMM / limit")] == "1.050"
    assert line[head.index("MPI / packed")] == "3.667"
    assert line[head.index("gloo / fused")] == "4.000"  # the fastest of its ways
    slow_memory = {row["column"]: row for row in LINEAR.rows(record(read=21.0))}
    assert slow_memory["gemm_packed"]["to_limit"] == 0.4
    assert rows["fused_window"]["parts_ms"] == {"gemm": 10.0, "exposed": 1.0}
    fast = {row["column"]: row for row in LINEAR.rows(record(fused=9.0))}
    assert fast["fused"]["parts_ms"] == {"gemm": 9.0, "exposed": 0.0}
    assert rows["unfused"]["parts_ms"] == {"all": 20.0}


@pytest.mark.parametrize(("seconds", "names"), [(0.5, ["torch"]), (0.7, [])])
def test_a_slow_product_is_left_out_with_a_note(seconds: float, names: list[str]) -> None:
    notes: list[str] = []
    peers = SimpleNamespace(torch="torch", mpi=None, gloo=None, wanted=("torch",))
    own: Any = SimpleNamespace(point=point(), peers=peers, notes=notes, most=float)
    own._least_s, own._expected_s, own._alone, own.by_torch = lambda: 0.1, lambda: seconds, str, 0
    assert [name for name, _ in LinearVariants.others(own)] == names
    assert len(notes) == 1 - len(names)
    said = "type 4, 2x2 ranks, f32, 8,4,2: no columns of torch: its product would take about 0.7 s"
    assert not notes or said in notes[0]


@pytest.mark.parametrize(
    ("said", "name", "words"),
    [
        ("mpiexec (Open MPI) 5.0.8", "Open MPI", "--map-by"),
        ("Intel(R) MPI Library for Linux OS, Version 2021.18", "Intel MPI", ""),
        ("HYDRA build details:", "MPICH", ""),
    ],
)
def test_an_mpi_is_known_by_what_its_launcher_says(
    said: str, name: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    program = tmp_path / "bin" / "mpiexec"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    for library in ("libmpi.so", "libmpi.so.12"):
        (tmp_path / "lib" / library).touch()
    [found] = find_mpis([tmp_path])
    assert found.name == name
    assert words in " ".join(found.command(2))
    variables = found.variables(2)
    assert variables["MPI4PY_LIBMPI"].endswith("libmpi.so.12")
    assert variables["LD_LIBRARY_PATH"].split(":")[0] == str(tmp_path / "lib")
