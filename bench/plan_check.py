"""Compares what `collops plan` predicts with measured times, on network namespaces of this machine.

    python bench/plan_check.py --rounds 3 --links links.jsonl

Needs root, iproute2 and UCX. In each round it measures AllGatherV and ReduceScatterV in turn: on
one host with 2 ranks, and on 2 hosts with 1 rank each, with a core each and on one core, from which
it calibrates; then on 2 x 2 and 3 x 1, which share all cores and which the calibration has not
seen. Before each run it waits until the machine is idle.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "multihost"))

from hosts import Host, network  # noqa: E402
from jobs import table_of  # noqa: E402

from collops.bench.runs import size_text  # noqa: E402
from collops.plan.calibration import Timed, calibrate, predicted_us, timed  # noqa: E402
from collops.terminal.tables import markdown_table  # noqa: E402

SIZES = "1k,4k,16k,64k,128k,256k,512k,1m,2m,4m"
OPS = ("all_gather_v", "reduce_scatter_v")
LIMIT_S = 300.0
IDLE = 0.95


class Shape(NamedTuple):
    """Hosts, ranks on each, and the cores that all may use (0: all of the machine)."""

    hosts: int
    ranks: int
    cores: int = 0


CALIBRATED = (Shape(1, 2), Shape(2, 1), Shape(2, 1, 1))
CHECKED = (Shape(2, 2), Shape(3, 1))


def words_of(op: str, sizes: str, iterations: int, shape: Shape) -> list[str]:
    """The bench's command line."""
    words = [sys.executable, "-m", "collops", "bench", op, "--sizes", sizes, "--skew", "even"]
    words += ["--iterations", str(iterations), "--buffers", "plain", "--peers", "none"]
    cores = sorted(os.sched_getaffinity(0))[: shape.cores]
    return ["taskset", "-c", ",".join(map(str, cores)), *words] if cores else words


def measure(hosts: list[Host], shape: Shape, op: str, options: Any) -> list[dict[str, Any]]:
    """The rows of one run of the bench."""
    words = words_of(op, options.sizes, options.iterations, shape)
    with tempfile.TemporaryDirectory() as folder:
        rows, ranks = Path(folder, "rows.jsonl"), Path(folder, "ranks.json")
        if shape.hosts == 1:
            words += ["--ranks", str(shape.ranks), "--json", str(rows)]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
            return [json.loads(line) for line in rows.read_text().splitlines()]
        placement = [host for host in range(shape.hosts) for _ in range(shape.ranks)]
        ranks.write_text(table_of(hosts[: shape.hosts], placement))
        words += ["--rank-table", str(ranks)]
        env = {"UCX_TLS": "tcp", "COLLOPS_TIMEOUT_S": "30"}
        running = [
            host.start(words + (["--json", str(rows)] if i == 0 else []), env=env)
            for i, host in enumerate(hosts[: shape.hosts])
        ]
        errors = [process.communicate(timeout=LIMIT_S)[1] for process in running]
        if any(process.returncode for process in running):
            raise RuntimeError(f"{shape}, {op}: {''.join(errors)}")
        return [json.loads(line) for line in rows.read_text().splitlines()]


def idle_part(seconds: float) -> float:
    """The part of all cores' time that was idle."""

    def ticks() -> list[int]:
        return list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]))

    before = ticks()
    time.sleep(seconds)
    passed = [now - then for now, then in zip(ticks(), before, strict=True)]
    return passed[3] / max(1, sum(passed))


def await_idle(limit_s: float = 1800.0) -> None:
    """Waits until no other program runs; after the limit an error."""
    deadline = time.monotonic() + limit_s
    while idle_part(1.0) < IDLE or idle_part(0.5) < IDLE:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the machine was never idle in {limit_s:g} s")


def measured(options: Any) -> dict[Shape, list[dict[str, Any]]]:
    """The rows of all rounds, by shape; a run that fails is left out, and named."""
    rows: dict[Shape, list[dict[str, Any]]] = {}
    for number in range(options.rounds):
        for shape in CALIBRATED + CHECKED:
            with network(max(shape.hosts, 2)) as hosts:
                for op in OPS:
                    await_idle()
                    try:
                        rows.setdefault(shape, []).extend(measure(hosts, shape, op, options))
                    except RuntimeError as error:
                        print(error, file=sys.stderr)
        load = os.getloadavg()[0]
        print(f"round {number + 1} of {options.rounds}, load {load:.1f}", file=sys.stderr)
    return rows


def main() -> int:
    """Measures and prints; 0 if all predictions are within the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rounds", metavar="N", type=int, default=3, help="rounds of all measurements (3)")
    add("--iterations", metavar="N", type=int, default=20, help="rounds of each benchmark (20)")
    add("--sizes", metavar="LIST", default=SIZES, help=f"bytes of the whole vector ({SIZES})")
    add("--links", metavar="FILE", type=Path, help="write the rows of the calibration to FILE")
    add("--rows", metavar="FILE", type=Path, help="write all rows to FILE; read them if it exists")
    add(
        "--limit",
        metavar="X",
        type=float,
        default=0.25,
        help="largest |predicted / measured - 1| that passes (0.25)",
    )
    options = parser.parse_args()
    if options.rows and options.rows.exists():
        kept = json.loads(options.rows.read_text())
        rows = {Shape(*map(int, name.split(","))): found for name, found in kept.items()}
    else:
        rows = measured(options)
        if options.rows:
            names = {",".join(map(str, shape)): found for shape, found in rows.items()}
            options.rows.write_text(json.dumps(names))
    calibrated = [row for shape in CALIBRATED for row in rows[shape]]
    if options.links:
        options.links.write_text("".join(f"{json.dumps(row)}\n" for row in calibrated))
    costs = calibrate(timed(calibrated))
    print(costs, "\n")
    lines, wrong = [], 0
    for shape in CALIBRATED + CHECKED:
        for each in timed(rows[shape]):
            if shape.hosts == 1:
                continue
            us = predicted_us(costs, each)
            ratio = us / each.us
            within = abs(ratio - 1) <= options.limit
            wrong += shape in CHECKED and not within
            name = f"{shape.hosts} x {shape.ranks}{', one core' if shape.cores else ''}"
            what = "calibrated" if shape in CALIBRATED else "checked"
            mark = "" if within else " !"
            lines.append(line_of(name, each, us, f"{ratio:.2f}{mark}", what))
    print(
        markdown_table(
            ("hosts", "call", "bytes", "predicted us", "measured us", "ratio", ""), lines
        )
    )
    checked = sum(len(timed(rows[shape])) for shape in CHECKED)
    print(f"\n{checked - wrong} of {checked} predictions within {options.limit:.0%}")
    return 1 if wrong else 0


def line_of(name: str, each: Timed, us: float, ratio: str, what: str) -> list[str]:
    """One line of the table."""
    size = size_text(each.size)
    return [name, each.call.op, size, f"{us:.1f}", f"{each.us:.1f}", ratio, what]


if __name__ == "__main__":
    raise SystemExit(main())
