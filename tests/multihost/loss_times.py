"""Measures how long the ranks of a job take to report a loss, and prints the median and the most.

    python tests/multihost/loss_times.py [--losses 20] [--elements 16]

Each loss is a job of its own on two hosts with two ranks each, which gather again and again. Needs
root, for network namespaces. Exit status 1: a limit was passed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from tests.multihost.hosts import Unavailable, network
from tests.multihost.jobs import RANKS
from tests.multihost.lost import HOST_S, RANK_S, Lost

PROGRAM = str(RANKS / "loss.py")
PLACEMENT = [0, 0, 1, 1]


def kill_rank(lost: Lost) -> set[int]:
    lost.kill(3)
    return {0, 1, 2}


def kill_host(lost: Lost) -> set[int]:
    lost.kill(2, 3)
    return {0, 1}


def cut(lost: Lost) -> set[int]:
    lost.cut()
    return {0, 1, 2, 3}


def hole(lost: Lost) -> set[int]:
    lost.make_hole()
    return {0, 1, 2, 3}


# A loss, by its name: what makes it, and returns the ranks that must report it.
LOSSES: dict[str, Callable[[Lost], set[int]]] = {
    "killed rank": kill_rank,
    "killed host": kill_host,
    "cut link": cut,
    "silent hole": hole,
}


def seconds_of(name: str, elements: int) -> list[float]:
    """The seconds after which each rank reported one loss."""
    with network(2) as hosts, Lost(hosts, PLACEMENT, PROGRAM, "0", str(elements)) as lost:
        expected = LOSSES[name](lost)
        errors = lost.errors()
    missing = expected - errors.keys()
    assert not missing, f"{name}: ranks {missing} reported nothing"
    for rank in expected:
        assert errors[rank][1].startswith("ERROR_PEER_LOST"), errors[rank]
    return [errors[rank][0] for rank in expected]


def main() -> int:
    """Measures, prints a table, and compares with the limits."""
    parser = argparse.ArgumentParser(description="How long ranks take to report a loss.")
    parser.add_argument("--losses", type=int, default=20, help="of each kind (20)")
    parser.add_argument("--elements", type=int, default=16, help="of each rank's block (16)")
    parser.add_argument("--kinds", default=",".join(LOSSES), help=f"of {', '.join(LOSSES)} (all)")
    options = parser.parse_args()
    good = True
    print("| loss | reports | median s | most s |\n| --- | ---: | ---: | ---: |", flush=True)
    try:
        for name in options.kinds.split(","):
            found = [t for _ in range(options.losses) for t in seconds_of(name, options.elements)]
            median, most = statistics.median(found), max(found)
            print(f"| {name} | {len(found)} | {median:.3f} | {most:.3f} |", flush=True)
            good = good and median < RANK_S and most < HOST_S
    except Unavailable as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 77
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
