"""An MLP whose rows and weights are cut in both directions over a 2 x 2 grid of ranks.

    y = relu(x @ up) @ down

Rank r stands at row r % 2 and column r // 2 of the grid. It holds some rows of x (not as many as
the others: the batch is uneven), of those the columns of its grid column, and a quarter of each
weight. Each layer is one call: it gathers rows along one axis of the grid, multiplies by the rank's
own part of the weight, sums the products along the other axis and leaves each rank its rows of the
sum. The second layer swaps the axes, so y lies as x did:

    x rows a, columns s -> all_gather_matmul_reduce_scatter -> hidden rows s, columns a
                        -> all_gather_matmul_reduce_scatter -> y rows a, columns s

All numbers are small and whole, so every sum is exact, and the result must be that of one process
to the last bit.

    python examples/tensor_parallel_linear.py --rows 13
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

import collops
from collops.testing import RankErrors, run_ranks

Array = npt.NDArray[np.float32]

RANKS, GRID = 4, 2
WIDTH, HIDDEN = 64, 250  # each is halved over one axis of the grid
MAX_ROWS = 100_000


@dataclass(frozen=True)
class Problem:
    """x, both weights, and the rows of each rank along the two axes of the grid."""

    x: Array  # [rows, WIDTH]
    up: Array  # [WIDTH, HIDDEN]
    down: Array  # [HIDDEN, WIDTH]
    rows: list[int]  # of x and y in each grid row
    hidden_rows: list[int]  # of the hidden layer in each grid column


def make_problem(rows: int) -> Problem:
    """Whole numbers from a fixed seed; rows shared out about 3 : 5, hidden rows 2 : 1."""
    random = np.random.default_rng(2026)

    def whole(*shape: int) -> Array:
        return random.integers(-3, 4, shape).astype(np.float32)

    first, first_hidden = rows * 3 // 8, rows * 2 // 3
    return Problem(
        x=whole(rows, WIDTH),
        up=whole(WIDTH, HIDDEN),
        down=whole(HIDDEN, WIDTH),
        rows=[first, rows - first],
        hidden_rows=[first_hidden, rows - first_hidden],
    )


def part(whole: Array, rows: Sequence[int], row: int, column: int) -> Array:
    """The block of a matrix at (row, column) of a grid; columns are halved."""
    begin = sum(rows[:row])
    half = whole.shape[1] // GRID
    block = whole[begin : begin + rows[row], column * half : (column + 1) * half]
    return np.ascontiguousarray(block)


def mlp(comm: collops.Communicator, problem: Problem) -> Array:
    """The two layers on one rank: takes its block of x, returns its block of y."""
    a, s = comm.rank % GRID, comm.rank // GRID
    block = part(problem.x, problem.rows, a, s)
    # The other ranks read memory of comm.empty in place, without a copy.
    x = comm.empty(block.shape, np.float32)
    x[:] = block
    hidden = comm.all_gather_matmul_reduce_scatter(
        x,
        part(problem.up, [WIDTH // GRID] * GRID, s, a),
        ag_dim=GRID,
        rs_dim=GRID,
        gather_rows=problem.rows,
        scatter_rows=problem.hidden_rows,
    )
    y = comm.all_gather_matmul_reduce_scatter(
        np.maximum(hidden, 0),
        part(problem.down, [HIDDEN // GRID] * GRID, a, s),
        ag_dim=GRID,
        rs_dim=GRID,
        inner_dim_is_ag=False,
        gather_rows=problem.hidden_rows,
        scatter_rows=problem.rows,
    )
    return np.asarray(y)


def whole_mlp(problem: Problem) -> list[Array]:
    """The same in one process, cut into the blocks of the ranks."""
    y = np.maximum(problem.x @ problem.up, 0) @ problem.down
    return [part(y, problem.rows, rank % GRID, rank // GRID) for rank in range(RANKS)]


def run_rank(rank: int, rows: int) -> Array:
    """The main function of each rank: connects to the others and runs the MLP."""
    with collops.init() as comm:
        return mlp(comm, make_problem(rows))


class Parser(argparse.ArgumentParser):
    """The command line; an error in it is one line."""

    def __init__(self) -> None:
        super().__init__(description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
        self.add_argument(
            "--rows", type=int, default=13, metavar="N", help="rows of x (default 13)"
        )

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the MLP on ranks and in one process, and compares: 0 if equal, 1 if not."""
    parser = Parser()
    rows = parser.parse_args(arguments).rows
    if not 0 <= rows <= MAX_ROWS:
        parser.error(f"argument --rows: must be from 0 to {MAX_ROWS}, got {rows}")
    try:
        results = run_ranks(run_rank, RANKS, rows)
    except RankErrors as failed:
        reason = next(iter(failed.errors.values()))
        if not isinstance(reason, collops.Error):
            raise
        print(f"{parser.prog}: {reason}", file=sys.stderr)
        return 2
    return 0 if report(results, whole_mlp(make_problem(rows))) else 1


def report(results: Sequence[Array], expected: Sequence[Array]) -> bool:
    """Prints a line per rank; returns whether all of them have the bits of `expected`."""
    print(f"an MLP {WIDTH} -> {HIDDEN} -> {WIDTH} on a {GRID} x {GRID} grid")
    print("rank  grid place  block of y  elements that differ")
    agree = True
    for rank, (got, want) in enumerate(zip(results, expected, strict=True)):
        same_shape = got.shape == want.shape
        differing = int(np.count_nonzero(got != want)) if same_shape else want.size
        agree = agree and same_shape and differing == 0
        block = " x ".join(map(str, got.shape))
        print(f"{rank:4}  ({rank % GRID}, {rank // GRID}){'':4}  {block:>10}  {differing:20}")
    print("equal to one process doing it all" if agree else "NOT equal to one process doing it all")
    return agree


if __name__ == "__main__":
    sys.exit(main())
