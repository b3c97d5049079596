"""A job of plain multiprocessing: its processes know each other by the family they belong to.

Usage: family_program.py METHOD RANKS JOBS FOLDER TOKEN; the rest is as for rank_program.py.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

from rank_program import work


def main() -> int:
    """Starts the ranks by fork, spawn or forkserver; 1 if one of them failed."""
    method, ranks, jobs, folder, token = sys.argv[1:]
    context = multiprocessing.get_context(method)
    arguments = (int(ranks), int(jobs), Path(folder), token)
    processes = [context.Process(target=work, args=(*arguments, r)) for r in range(int(ranks))]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return int(any(process.exitcode != 0 for process in processes))


if __name__ == "__main__":
    raise SystemExit(main())
