"""A layer of experts whose tokens are on several ranks: three ways, their bytes and their times.

    y[t] = sum over k of w[t, k] * (relu(x[t] @ up[e]) @ down[e])    with e = ids[t, k]

Rank r has its own tokens, not as many as the others, and 8 / P of the experts. The routing is
skewed: the first experts get most of the tokens.

    gather    every rank gets all tokens, computes for those of its experts, and the partial
              results are added up where the tokens are: what vLLM does on CPUs
    dispatch  moe_dispatch sends each token to the ranks of its experts alone, moe_combine brings
              the experts' rows back
    fused     the exchange and the products in one call each way

All numbers are small and whole, so every sum is exact, and each way must give the bits of one
process. Bytes are what leaves a rank for others.

    python examples/moe_layer.py --ranks 4 --tokens 512
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

import collops
from collops.testing import RankErrors, run_ranks

Array = npt.NDArray[Any]

EXPERTS, TOP_K = 8, 2
WIDTH, HIDDEN = 256, 128
RANKS = (1, 2, 4, 8)
MAX_TOKENS = 100_000


@dataclass(frozen=True)
class Problem:
    """The tokens of every rank, which experts they name with which weight, and the experts."""

    xs: list[Array]  # [tokens, WIDTH]
    ids: list[Array]  # [tokens, TOP_K]
    weights: list[Array]  # [tokens, TOP_K]
    up: Array  # [EXPERTS, WIDTH, HIDDEN]
    down: Array  # [EXPERTS, HIDDEN, WIDTH]


@dataclass
class Way:
    """What a rank measured of one way."""

    y: Array
    bytes_out: int
    seconds: float


def make_problem(ranks: int, tokens: int) -> Problem:
    """Whole numbers from a fixed seed; about `tokens` on each rank, the last has half of them."""
    random = np.random.default_rng(2026)

    def whole(*shape: int) -> Array:
        return random.integers(-2, 3, shape).astype(np.float32)

    counts = [tokens] * (ranks - 1) + [(tokens + 1) // 2]
    likely = 1 / np.arange(1, EXPERTS + 1)
    ids = [
        np.array(
            [random.choice(EXPERTS, TOP_K, False, likely / likely.sum()) for _ in range(count)]
        ).reshape(count, TOP_K)
        for count in counts
    ]
    return Problem(
        xs=[whole(count, WIDTH) for count in counts],
        ids=ids,
        weights=[whole(count, TOP_K) for count in counts],
        up=whole(EXPERTS, WIDTH, HIDDEN),
        down=whole(EXPERTS, HIDDEN, WIDTH),
    )


def expert(x: Array, up: Array, down: Array) -> Array:
    """The MLP of one expert."""
    return np.asarray(np.maximum(x @ up, 0) @ down)


class Layer:
    """One rank's part of the layer, in three ways; each returns y and the bytes that it sent."""

    def __init__(self, comm: collops.Communicator, problem: Problem) -> None:
        self.comm, self.problem = comm, problem
        each = EXPERTS // comm.size
        self.mine = range(comm.rank * each, (comm.rank + 1) * each)
        self.up, self.down = (
            np.ascontiguousarray(w[self.mine]) for w in (problem.up, problem.down)
        )
        self.x, self.ids = problem.xs[comm.rank], problem.ids[comm.rank]
        self.weights = problem.weights[comm.rank]

    def gather(self) -> tuple[Array, int]:
        """Every token on every rank."""
        comm, sizes = self.comm, [len(x) for x in self.problem.xs]
        x, ids, weights = comm.all_gatherv([self.x, self.ids, self.weights], sizes)
        total = np.zeros((len(x), WIDTH), np.float32)
        for number, e in enumerate(self.mine):
            for k in range(TOP_K):
                rows = np.nonzero(ids[:, k] == e)[0]
                y = expert(x[rows], self.up[number], self.down[number])
                total[rows] += weights[rows, k : k + 1] * y
        own = sum(one.nbytes for one in (self.x, self.ids, self.weights))
        others = total.nbytes - len(self.x) * WIDTH * 4
        return comm.reduce_scatterv(total, sizes), own * (comm.size - 1) + others

    def dispatch(self) -> tuple[Array, int]:
        """Each token on the ranks of its experts; the products are numpy's."""
        comm = self.comm
        rows, counts, handle = comm.moe_dispatch(self.x, self.ids, EXPERTS)
        made = np.empty_like(rows)
        end = 0
        for number, count in enumerate(counts):
            block = slice(end, end := end + int(count))
            made[block] = expert(rows[block], self.up[number], self.down[number])
        y = comm.moe_combine(made, self.weights, handle)
        return y, self.bytes_of(handle)

    def fused(self) -> tuple[Array, int]:
        """The same by two products that exchange the rows."""
        comm = self.comm
        order = np.argsort(self.ids.reshape(-1), kind="stable")
        counts = np.bincount(self.ids.reshape(-1), minlength=EXPERTS).reshape(comm.size, -1)
        x = self.x[order // TOP_K]
        hidden = comm.all_to_allv_grouped_matmul(x, self.up, counts)
        rows = comm.grouped_matmul_all_to_allv(np.maximum(hidden, 0), self.down, counts)
        back = np.empty_like(rows)
        back[order] = rows
        y = (back.reshape(-1, TOP_K, WIDTH) * self.weights[:, :, None]).sum(1)
        there = (counts.sum() - counts[comm.rank].sum()) * WIDTH * 4
        return y, int(there + (len(hidden) - counts[comm.rank].sum()) * WIDTH * 4)

    def bytes_of(self, handle: collops.MoeHandle) -> int:
        """There and back."""
        rank = self.comm.rank
        moved = [c.sum() - c[rank].sum() for c in (handle.send_sizes, handle.recv_sizes)]
        return int(sum(moved)) * WIDTH * 4


WAYS: dict[str, Callable[[Layer], tuple[Array, int]]] = {
    "gather": Layer.gather,
    "dispatch": Layer.dispatch,
    "fused": Layer.fused,
}


def run_rank(rank: int, problem: Problem, rounds: int) -> dict[str, Way]:
    """The main function of each rank: every way, the fastest of some rounds."""
    ways = {}
    with collops.init() as comm:
        layer = Layer(comm, problem)
        for name, way in WAYS.items():
            y, bytes_out = way(layer)
            seconds = []
            for _ in range(rounds):
                comm.barrier()
                begin = time.perf_counter()
                way(layer)
                seconds.append(time.perf_counter() - begin)
            ways[name] = Way(y, bytes_out, min(seconds))
    return ways


def whole_layer(problem: Problem) -> list[Array]:
    """The same in one process."""
    ys = []
    for x, ids, weights in zip(problem.xs, problem.ids, problem.weights, strict=True):
        y = np.zeros_like(x)
        for e in range(EXPERTS):
            made = expert(x, problem.up[e], problem.down[e])
            for k in range(TOP_K):
                y += (ids[:, k : k + 1] == e) * weights[:, k : k + 1] * made
        ys.append(y)
    return ys


class Parser(argparse.ArgumentParser):
    """The command line; an error in it is one line."""

    def __init__(self) -> None:
        super().__init__(description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
        self.add_argument("--ranks", type=int, default=4, choices=RANKS, help="default 4")
        self.add_argument(
            "--tokens", type=int, default=256, metavar="N", help="of a rank (default 256)"
        )
        self.add_argument("--rounds", type=int, default=5, metavar="N", help="default 5")
        self.add_argument("--plot", metavar="FILE", help="a picture, if matplotlib is installed")

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the layer on ranks and in one process, and compares: 0 if equal, 1 if not."""
    parser = Parser()
    given = parser.parse_args(arguments)
    if not 0 <= given.tokens <= MAX_TOKENS:
        parser.error(f"argument --tokens: must be from 0 to {MAX_TOKENS}, got {given.tokens}")
    if given.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("argument --plot: matplotlib is not installed")
    problem = make_problem(given.ranks, given.tokens)
    try:
        # New programs, whose numpy reads that each has one thread: the ranks share the cores.
        results = run_ranks(
            *(run_rank, given.ranks, problem, max(given.rounds, 1)),
            start_method="spawn",
            env={"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            timeout=600,
        )
    except RankErrors as failed:
        reason = next(iter(failed.errors.values()))
        if not isinstance(reason, collops.Error):
            raise
        print(f"{parser.prog}: {reason}", file=sys.stderr)
        return 2
    if given.plot:
        plot(results, given.plot)
    return 0 if report(results, whole_layer(problem)) else 1


def report(results: Sequence[dict[str, Way]], expected: Sequence[Array]) -> bool:
    """Prints a line for each way; returns whether all ranks have the bits of `expected`."""
    rows = [len(y) for y in expected]
    print(
        f"{EXPERTS} experts of {WIDTH} -> {HIDDEN} -> {WIDTH}, {TOP_K} for a token; {rows} tokens"
    )
    print("way       sent by a rank  of gather    time  elements that differ")
    agree = True
    whole = sum(ways["gather"].bytes_out for ways in results)
    for name in results[0]:
        ways = [one[name] for one in results]
        sent = sum(way.bytes_out for way in ways)
        wrong = sum(int((w.y != want).sum()) for w, want in zip(ways, expected, strict=True))
        agree = agree and wrong == 0
        share = f"{sent / whole:.0%}" if whole else "-"
        milliseconds = max(way.seconds for way in ways) * 1e3
        mean = sent / len(ways) / 2**20
        print(f"{name:8}  {mean:10.2f} MiB  {share:>9}  {milliseconds:5.1f} ms  {wrong:20}")
    print("equal to one process doing it all" if agree else "NOT equal to one process doing it all")
    return agree


def plot(results: Sequence[dict[str, Way]], file: str) -> None:
    """Bytes and times of the ways as bars."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3))
    names = list(results[0])
    sent = [sum(one[name].bytes_out for one in results) / len(results) / 2**20 for name in names]
    left.bar(names, sent)
    left.set_ylabel("MiB sent by a rank")
    right.bar(names, [max(one[name].seconds for one in results) * 1e3 for name in names])
    right.set_ylabel("ms, the slowest rank")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
