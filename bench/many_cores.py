"""The CPU's collectives and products on a machine with many cores, in three minutes.

    python bench/many_cores.py [--mpi PREFIX] [--output report.json]

Collectives with as many ranks as cores and with half of them, 1 KiB to 64 MiB, beside gloo and an
MPI; products of 2 to 8 ranks that share the cores, beside torch. All from `collops bench`, whose
tables are printed; the report has the rows, and how far they are from the goals. Exit status: 1 if
a question failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from report import ROOT, Question, Report, Row

SECONDS = 175.0
# Of the V calls.
SKEW = "3:5"
SIZES = "1k,16k,256k,1m,16m,64m"
COLLECTIVES = ("all_gather_v", "reduce_scatter_v", "all_reduce", "all_to_all_v")
PRODUCT = "512,4096,4096"
# Parts of the peers' times, and of the product alone.
_GLOO, _MPI, _FUSED, _TORCH, _PACKED = 0.5, 0.8, 1.05, 1.0, 0.85
_JUDGED = {1 << 10: "1 KiB", 1 << 20: "1 MiB", 16 << 20: "16 MiB"}


def main() -> int:
    """Asks all of it; 1 if something failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mpi", metavar="PREFIX", help="an MPI installed with bin/mpiexec in it")
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "build" / "many_cores" / "report.json",
        help="the JSON file of the report (build/many_cores/report.json)",
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"for all together ({SECONDS:.0f})"
    )
    options = parser.parse_args()
    folder = options.output.resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    report = Report(options.output, options.seconds, "bench/many_cores", judged)
    for question in questions(sys.executable, folder, options.mpi):
        if question.rows is not None:
            question.rows.unlink(missing_ok=True)
        if report.ask(question):
            print(report.found["questions"][-1]["output"], flush=True)
    for goal in report.found["goals"]:
        print(f"{goal['goal']}: {goal['found']} (at most {goal['at_most']})")
    print(f"All of it is in {options.output}")
    return 1 if any(q["state"] == "failed" for q in report.found["questions"]) else 0


def questions(python: str, folder: Path, mpi: str | None = None) -> Iterator[Question]:
    """All of them, the most important first; their rows are files in a folder."""
    cores = len(os.sched_getaffinity(0))
    few = "" if cores >= 2 else "it needs two cores"
    has_mpi = bool(mpi or shutil.which("mpirun"))
    for ranks in (8, 4, 2):
        words = ["linear_parallel", "--type", "1,2", "--ranks", str(ranks), "--dtype", "bf16"]
        words += ["--rows-share", "1:1", "--shapes", PRODUCT, "--iterations", "7"]
        words += ["--peers", "torch"]
        question = _bench(f"products of {ranks} on the CPU", words, python, folder)
        question.env = {"COLLOPS_NUM_THREADS": str(max(1, cores // ranks))}
        question.missing = "" if cores >= ranks else f"it needs {ranks} cores"
        yield question
    for ranks in sorted({max(2, cores), max(2, cores // 2)}, reverse=True):
        for operator in COLLECTIVES:
            words = [operator, "--ranks", str(ranks), "--sizes", SIZES, "--iterations", "5"]
            words += ["--skew", SKEW] if operator.endswith("_v") else []
            words += [
                "--peers",
                "gloo,mpi" if has_mpi else "gloo",
                *(["--mpi", mpi] if mpi else []),
            ]
            question = _bench(f"{operator} of {ranks} on the CPU", words, python, folder)
            question.missing = few
            yield question


def _bench(name: str, words: list[str], python: str, folder: Path) -> Question:
    file = folder / f"{name.replace(' ', '_')}.jsonl"
    command = [python, "-m", "collops", "bench", *words, "--json", str(file)]
    return Question(name, command, 25, rows=file)


def judged(rows: list[Row]) -> list[Row]:
    """Each goal, the figure or None, and whether that reaches the goal."""
    found = []
    for goal, most, value in [*_products(rows), *_collectives(rows)]:
        figure = None if value is None else round(value, 3)
        reached = None if value is None else value <= most
        found.append({"goal": goal, "at_most": most, "found": figure, "reached": reached})
    return found


_Goal = tuple[str, float, "float | None"]


def _products(rows: list[Row]) -> Iterator[_Goal]:
    """Of each product: the fused call by the product alone, and that by torch's."""
    places = {(row["ranks"], row["type"]) for row in rows if row["bench"] == "linear_parallel"}
    for ranks, kind in sorted(places, reverse=True):
        ms = {
            row["column"]: row["ms"]
            for row in rows
            if row["bench"] == "linear_parallel" and (row["ranks"], row["type"]) == (ranks, kind)
        }
        name = f"type {kind}, {ranks} ranks: "
        for what, one, by, most in (
            ("fused / product alone", "fused", "gemm", _FUSED),
            ("product alone / torch.matmul", "gemm", "torch", _TORCH),
            ("product of a packed weight / torch.matmul", "gemm_packed", "torch", _PACKED),
        ):
            yield name + what, most, ms[one] / ms[by] if one in ms and by in ms else None


def _collectives(rows: list[Row]) -> Iterator[_Goal]:
    """With the most ranks, in plain memory: by the fastest way of each peer."""
    ranks = max((row["ranks"] for row in rows if row["bench"] in COLLECTIVES), default=0)
    for operator in COLLECTIVES[:2]:
        for size, text in _JUDGED.items():
            ms: dict[str, float] = {}
            for row in rows:
                if (row["bench"], row["ranks"], row.get("bytes")) != (operator, ranks, size):
                    continue
                way = row["column"].partition("_")[0]
                ms[way] = min(ms.get(way, row["ms"]), row["ms"])
            for peer, most in (("gloo", _GLOO), ("mpi", _MPI)):
                value = ms["plain"] / ms[peer] if "plain" in ms and peer in ms else None
                yield f"{operator}, {ranks} ranks, {text}: time / {peer}", most, value


if __name__ == "__main__":
    raise SystemExit(main())
