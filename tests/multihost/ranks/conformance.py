"""One rank of a conformance run: makes the calls of every case, and checks its own results.

Arguments: the level ("atb" or "plain"), then the operators.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import collops
from tests.conformance.conformance_table import TABLE
from tests.conformance.runs import Run
from tests.conformance.test_conformance import judged


def main(level: str, *operators: str) -> None:
    comm = collops.init(backend="ucx")
    run = Run(level, comm.size, num_threads=1, backend="ucx")
    for operator in operators:
        problems: list[str] = []
        cases = judged(operator, run)
        for case in cases:
            problems += case.problems(comm.rank, TABLE[operator].call(comm, case.case, run))
        comm.barrier()
        assert not problems, "\n".join(problems[:20])
        print(operator, len(cases), flush=True)
    comm.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
