"""`collops bench linear_parallel` as a whole: its output, files, and refusals."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from collops.bench.operators import OPERATORS, load
from collops.bench.operators.linear_parallel import SHAPES
from collops.bench.options import parse
from collops.bench.plot import require_matplotlib
from tests.unit.bench.benches import bench, rows_of

LINEAR: Any = load("linear_parallel")

# Starts ranks as an MPI does, and says who they are in variables of ours.
LAUNCHER = """
import os, subprocess, sys
if sys.argv[1] == "--version":
    raise SystemExit("HYDRA build details: none")
size = int(sys.argv[2])
job = {**os.environ, "COLLOPS_JOB_ID": f"fake-{os.getpid()}", "COLLOPS_RANK_SIZE": str(size)}
ranks = [
    subprocess.Popen(sys.argv[3:], env={**job, "COLLOPS_RANK": str(rank)})
    for rank in range(size)
]
raise SystemExit(max(rank.wait() for rank in ranks))
"""


def test_benches_are_listed() -> None:
    done = bench()
    assert (done.returncode, done.stdout) == (2, "")
    assert all(name in done.stderr for name in OPERATORS)


def test_all_types_run_and_every_column_is_right(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows_file, plot = tmp_path / "rows.jsonl", tmp_path / "parts.png"
    done = bench(
        *("linear_parallel", "--quick", "--dtype", "f32", "--peers", "numpy"),
        *("--json", str(rows_file), "--plot", str(plot), "--iterations", "1"),
    )
    assert done.returncode == 0, done.stderr
    assert "### Summary" in done.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    rows = rows_of(rows_file)
    assert {(row["type"], row["dtype"], row["m"]) for row in rows} == {
        (kind, "f32", m) for kind in (1, 2, 4) for m in (24, 5)
    }
    for row in rows:
        named = (row["type"], row["dtype"], row["m"], row["column"])
        assert row["ms"] > 0, named
        compared = row["column"] in ("fused_window", "fused", "packed", "pipeline", "unfused")
        assert row["wrong_ranks"] == (0 if compared else None), named
    assert {row["column"] for row in rows} == {*LINEAR.own, "numpy"}


def test_a_sweep_compares_fused_with_unfused_for_each_m(tmp_path: Path) -> None:
    arguments = ["linear_parallel", "--sweep", "--quick", "--type", "2", "--iterations", "1"]
    done = bench(*arguments)
    assert done.returncode == 0, done.stderr
    sweep = done.stdout.partition("### Sweep")[2]
    assert [f"f32, {m},96,80" in sweep for m in (1, 2, 4, 8, 16, 32)] == [True] * 6
    assert "type 2, 2x1, f32: median" in sweep


def test_leaves_are_columns_of_the_same_run() -> None:
    arguments = ["--quick", "--type", "1", "--dtype", "f32", "--shapes", "5,32,9"]
    done = bench("linear_parallel", *arguments, "--leaves", "2,4", "--peers", "none")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if " leaves " in line]
    assert [line.split("|")[1].split(", ")[-1].strip() for line in lines] == [
        *("2 leaves", "2 leaves", "4 leaves", "4 leaves"),
    ]
    assert sum(line.rstrip(" |").endswith("ok") for line in lines) == 2


def test_ranks_of_a_launcher_are_measured_and_what_is_missing_is_said(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "mpiexec"
    program.parent.mkdir()
    # Not by a line #!: that takes no path with spaces.
    words = shlex.join([sys.executable, "-c", LAUNCHER])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    arguments = ["linear_parallel", "--quick", "--type", "1", "--peers", "mpi"]
    done = bench(*arguments, "--mpi", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "type 1, 1x2, f32, 24,96,80, MPICH" in done.stdout
    assert "no columns of" in done.stdout


def test_ranks_that_fail_are_reported_with_what_they_said(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "mpiexec"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho HYDRA; test $1 = --version || { echo no fabric; exit 3; }")
    program.chmod(0o755)
    done = bench("linear_parallel", "--quick", "--mpi", str(tmp_path))
    assert done.returncode == 1
    assert "the ranks failed under MPICH:\n" in done.stderr
    assert "no fabric" in done.stderr


def test_without_arguments_the_products_are_those_of_the_page() -> None:
    points: list[Any] = [*LINEAR.points(parse(LINEAR, []))]
    assert {point.shape for point in points} == set(SHAPES)
    assert {(point.type, point.grid) for point in points} == {(1, (1, 2)), (2, (2, 1)), (4, (2, 2))}
    assert {point.dtype for point in points} == {"f32", "bf16", "f16"}
    assert {point.shares for point in points} == {(3, 5)}


def test_without_matplotlib_a_plot_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"pip install 'collops\[bench\]'"):
        require_matplotlib(tmp_path / "parts.png")


def test_torch_and_gloo_are_columns() -> None:
    pytest.importorskip("torch")
    # Type 4 gathers and scatters: all that the ways of the other types are made of.
    done = bench(*"linear_parallel --quick --type 4 --peers gloo,torch --dtype bf16".split())
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for label in ("torch.matmul + gloo isend/irecv", "torch.matmul + gloo all_to_all_single"):
        found = [line for line in lines if line.startswith(f"| {label}")]
        assert len(found) == 2
        assert all(line.endswith("ok |") for line in found)
    assert sum(line.startswith("| torch.matmul alone") for line in lines) == 2


@pytest.mark.parametrize(
    ("installed", "words", "needed"),
    [
        ((), (), "ml_dtypes or torch, neither of which is installed"),
        (("torch",), ("--backend", "cuda"), "ml_dtypes, which is not installed"),
        (("torch",), (), ""),
    ],
)
def test_an_element_type_whose_package_is_missing(
    installed: tuple[str, ...],
    words: tuple[str, ...],
    needed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is left out, with a note, where it was not asked for."""

    def find(name: str) -> str:
        if name not in installed:  # as where something hides it; else None is returned
            raise ModuleNotFoundError(name)
        return name

    monkeypatch.setattr("importlib.util.find_spec", find)
    operator = load("linear_parallel")
    needed = needed and f"bf16 needs {needed}: pip install 'collops[ml-dtypes]'"
    options = parse(operator, words)
    assert options.dtype == (("f32", "f16") if needed else ("f32", "bf16", "f16"))
    assert options.left_out == ([needed] if needed else [])
    if needed:
        with pytest.raises(SystemExit, match="2"):
            parse(operator, [*words, "--dtype", "f16,bfloat16"])
        said = capsys.readouterr().err
        assert said.startswith(f"collops bench linear_parallel: --dtype {needed}")
    else:
        assert parse(operator, [*words, "--dtype", "bf16"]).dtype == ("bf16",)
