"""Compares two builds of bench_loop in one run: python compare_builds.py OLD NEW [--pairs N].

Each round runs OLD, NEW and OLD again. For every point it prints the medians over the rounds, their
ratio, and how far the two runs of OLD in one round were apart: the median of |second / first - 1|
and its largest value. A ratio within that spread says nothing. With --instructions it also counts
the instructions of a 1 KiB call, by the machine's counter or, where there is none, by valgrind's
callgrind.

A virtual machine's host moves the two cores between cache domains. The loop passes a flag between
them before and after its points, and a round counts only if all its three runs were near, or all
far; both kinds are listed apart.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

Points = dict[str, float]
Round = tuple[Points, Points, Points]
NEAR_US = 0.15  # one way of a flag between two cores of one cache domain takes less
COUNTED_CALLS = 100
COUNTED_ROUNDS = 3
LATE_US = 5000  # under callgrind all is about fifty times slower
NUM_OPERATORS = 2


def measure(program: Path, options: list[str]) -> Points:
    """One run: the points that it printed."""
    done = subprocess.run(
        [program, *options], stdout=subprocess.PIPE, text=True, check=True, timeout=600
    )
    lines = [line.rsplit(": ", 1) for line in done.stdout.splitlines()]
    number = re.compile(r"[\d.]+( us)?")
    return {
        name: float(value.removesuffix(" us")) for name, value in lines if number.fullmatch(value)
    }


def run_round(old: Path, new: Path, options: list[str]) -> Round:
    """OLD, NEW and OLD again."""
    return measure(old, options), measure(new, options), measure(old, options)


def count(program: Path) -> Points:
    """Instructions of a 1 KiB call of each rank, mean of the two operators, by callgrind."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes"]
        command += ["--toggle-collect=CountedCall", f"--callgrind-out-file={folder}/%p"]
        loop = ["--count-only", "--late-us", str(LATE_US), "--calls", str(COUNTED_CALLS)]
        subprocess.run([*command, program, *loop], check=True, capture_output=True, timeout=600)
        counts: Points = {}
        for path in Path(folder).iterdir():
            text = path.read_text()
            rank = re.search(r"--rank (\d)", text)
            total = re.search(r"^summary: (\d+)", text, re.MULTILINE)
            if rank and total:
                name = f"1 KiB, instructions of rank {rank[1]} (callgrind)"
                counts[name] = int(total[1]) / (NUM_OPERATORS * COUNTED_CALLS)
        return dict(sorted(counts.items()))


def placement(run: Points) -> str:
    """Where the two cores were during a run."""
    near = {value < NEAR_US for name, value in run.items() if name.startswith("flag")}
    return "moved" if len(near) > 1 else "near" if near == {True} else "far"


def report_apart(rounds: list[Round]) -> None:
    """A table for each placement that all three runs of some rounds had."""
    for where in ("near", "far"):
        kept = [one for one in rounds if {placement(run) for run in one} == {where}]
        print(f"cores {where}: {len(kept)} of {len(rounds)} rounds")
        if kept:
            report(kept)


def report(rounds: list[Round]) -> None:
    """A line per point; each round has OLD, NEW and OLD again."""
    print(f"{'point':<48} {'old':>12} {'new':>12} {'new/old':>8} {'old/old-1':>10} {'worst':>7}")
    for name in rounds[0][0]:
        old = statistics.median(value for one, _, two in rounds for value in (one[name], two[name]))
        new = statistics.median(between[name] for _, between, _ in rounds)
        spread = [abs(two[name] / one[name] - 1) for one, _, two in rounds]
        print(
            f"{name:<48} {old:>12.3f} {new:>12.3f} {new / old:>8.3f}"
            f" {statistics.median(spread):>10.1%} {max(spread):>7.1%}"
        )


def main() -> None:
    """Reads the arguments and runs the rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=10, help="rounds; 10 if not given")
    parser.add_argument("--pin", help="cores of the two ranks, such as 0,1")
    parser.add_argument("--instructions", action="store_true")
    arguments = parser.parse_args()
    options = [*(["--pin", arguments.pin] if arguments.pin else [])]
    options += ["--instructions"] if arguments.instructions else []
    old, new = arguments.old.resolve(), arguments.new.resolve()
    rounds = [run_round(old, new, options) for _ in range(arguments.pairs)]
    report_apart(rounds)
    counted = any("instructions" in name for name in rounds[0][0])
    if arguments.instructions and not counted:
        if shutil.which("valgrind") is None:
            print("instructions: not counted (no counter of the machine, and no valgrind)")
        else:
            report([(count(old), count(new), count(old)) for _ in range(COUNTED_ROUNDS)])


if __name__ == "__main__":
    main()
