"""The parts of the benchmarks: data, groups, times, memory, ratios, tables, launchers."""

from __future__ import annotations

import mmap
import os
import pickle
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
from collops.bench.operator import Request
from collops.bench.operators import load
from collops.bench.operators.linear_parallel import best, summary
from collops.bench.operators.linear_variants import Groups, LinearPoint, LinearVariants
from collops.bench.peers.mpi_launcher import find_mpis
from collops.bench.shares import share_rows
from collops.terminal.tables import markdown_table

_MIB = 1 << 20
LINEAR: Any = load("linear_parallel")


def point(**fields: Any) -> LinearPoint:
    common = {"type": 4, "grid": (2, 2), "dtype": "f32", "shape": (8, 4, 2), "shares": (3, 5)}
    return LinearPoint(**{**common, **fields})


@pytest.mark.parametrize(
    ("rows", "members", "shares", "expected"),
    [
        (8, 2, (3, 5), (3, 5)),
        (1, 2, (3, 5), (0, 1)),
        (10, 3, (1,), (3, 3, 4)),
        (16, 4, (3, 5), (3, 5, 3, 5)),
        (0, 2, (3, 5), (0, 0)),
    ],
)
def test_rows_are_shared_out_and_none_is_lost(
    rows: int, members: int, shares: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert share_rows(rows, members, shares) == expected


def test_groups_of_a_grid_are_the_operators() -> None:
    found = [Groups.of(point(grid=(3, 2), shape=(9, 4, 2), shares=(1,)), rank) for rank in range(6)]
    assert [groups.gather.ranks for groups in found[::3]] == [(0, 1, 2), (3, 4, 5)]
    assert [groups.scatter.ranks for groups in found[:3]] == [(0, 3), (1, 4), (2, 5)]
    assert (found[4].gather.index, found[4].scatter.index) == (1, 1)
    assert found[4].gather.counts(4) == [12, 12, 12]
    assert found[4].scatter.displs(2) == [0, 8]


def test_a_request_survives_the_way_to_the_ranks() -> None:
    points = (point(), point(type=1, grid=(1, 2)))
    given = {"own": LINEAR.own, "peers": ("mpi",), "iterations": 3, "threads": 2}
    request = Request(operator="linear_parallel", points=points, **given)  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(request)) == request


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


def test_fresh_memory_is_not_there_until_it_is_used() -> None:
    assert fresh_memory(0).size == 0
    memory: Any = None

    def call() -> None:
        memory[: 24 * _MIB] = 1

    memory = fresh_memory(64 * _MIB)
    found = added_bytes(call, lambda: None)
    if found is None:
        pytest.skip("this system does not tell how much memory a process had at most")
    alone, shared = found
    assert 23 * _MIB < alone < 28 * _MIB
    assert abs(shared) < _MIB


def test_memory_that_a_call_gives_back_counts_and_shared_memory_counts_apart() -> None:
    descriptor = os.memfd_create("shared")
    os.truncate(descriptor, 16 * _MIB)
    shared_memory = np.frombuffer(mmap.mmap(descriptor, 16 * _MIB), np.uint8)
    os.close(descriptor)

    def call() -> None:
        shared_memory[: 8 * _MIB] = 1
        fresh_memory(32 * _MIB)[:] = 1  # gone when the call returns

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


def test_variants_run_in_turn_and_their_input_is_written_anew() -> None:
    seen: list[str] = []
    variants = [
        Variant(key, key, [("gather", partial(seen.append, key))], x=np.zeros(1)) for key in "abc"
    ]
    written: list[Any] = []
    times = interleave(variants, Rounds(4), written.append, lambda: seen.append("meet"))
    assert times.shape[:2] == (3, 4)
    assert len(written) == 18
    assert seen[::2] == ["meet"] * 18
    rounds = ["".join(seen[i : i + 6 : 2]) for i in range(1, 36, 6)]
    assert all(sorted(letters) == list("abc") for letters in rounds)
    assert len(set(rounds)) > 1
    assert np.all(times[..., 1] >= times[..., 0])


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
    rows = {row["column"]: row for row in LINEAR.rows(record(mpi_alltoallv=33.0))}
    assert rows["fused_window"]["to_gemm"] == 1.1
    assert rows["mpi_alltoallv"]["to_fused"] == 3.0
    assert rows["gemm"]["peak_fraction"] == 0.8
    assert rows["peak"]["to_gemm"] is None
    assert rows["packed"]["to_gemm"] == round(9 / 8.4, 4)
    assert rows["gemm_packed"]["to_limit"] == 1.05
    head, [line] = summary([list(rows.values())])
    assert line[head.index("packed GEMM / limit")] == "1.050"
    assert line[head.index("MPI / packed")] == "3.667"
    slow_memory = {row["column"]: row for row in LINEAR.rows(record(read=21.0))}
    assert slow_memory["gemm_packed"]["to_limit"] == 0.4
    assert rows["fused_window"]["parts_ms"] == {"gemm": 10.0, "exposed": 1.0}
    fast = {row["column"]: row for row in LINEAR.rows(record(fused=9.0))}
    assert fast["fused"]["parts_ms"] == {"gemm": 9.0, "exposed": 0.0}
    assert rows["unfused"]["parts_ms"] == {"all": 20.0}


def test_the_fastest_way_of_a_library_counts() -> None:
    rows = LINEAR.rows(record(gloo_isend_irecv=50.0, gloo_all_to_all=44.0))
    assert best(rows, "gloo")["column"] == "gloo_all_to_all"  # type: ignore[index]
    assert best(rows, "mpi") is None
    head, [line] = summary([rows])
    assert line[head.index("gloo / fused")] == "4.000"


def test_a_wrong_result_is_printed_as_wrong() -> None:
    rows = LINEAR.rows(record())
    assert "WRONG" not in LINEAR.text(rows)
    rows[2]["wrong_ranks"] = 2
    [line] = [line for line in LINEAR.text(rows).splitlines() if "WRONG" in line]
    assert line.startswith("| unfused")
    assert "WRONG on 2 rank(s)" in line


@pytest.mark.parametrize(("seconds", "names"), [(0.15, ["torch"]), (0.5, ["torch"]), (0.7, [])])
def test_a_slow_product_is_left_out_with_a_note(seconds: float, names: list[str]) -> None:
    notes: list[str] = []
    peers = SimpleNamespace(torch="torch", mpi=None, gloo=None, wanted=("torch",))
    own: Any = SimpleNamespace(point=point(), peers=peers, notes=notes, most=float)
    own._least_s, own._expected_s, own._alone, own.by_torch = lambda: 0.1, lambda: seconds, str, 0
    assert [name for name, _ in LinearVariants.others(own)] == names
    assert len(notes) == 1 - len(names)
    said = "type 4, 2x2 ranks, f32, 8,4,2: no columns of torch: its product would take about 0.7 s"
    assert not notes or said in notes[0]


def test_tables_are_aligned() -> None:
    lines = markdown_table(["name", "ms"], [["a", "10.25"], ["longer", "1.5"]]).splitlines()
    assert lines[1] == "| ------ | ----: |"
    assert lines[2] == "| a      | 10.25 |"
    assert len({len(line) for line in lines}) == 1


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
