"""The calls of the demo, each run on ranks and compared with one process, and their table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import collops
from collops.examples import tensor_parallel_linear, uneven_batch
from collops.golden.data import fill, poison
from collops.golden.data.dtypes import differs, name_of
from collops.golden.data.shares import packed
from collops.golden.operators.all_gather_v import all_gather_v
from collops.golden.operators.reduce_scatter_v import reduce_scatter_v
from collops.terminal.tables import aligned, widths_of
from collops.testing import run_ranks

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

    Measured = tuple[Array, float]


HEAD = ("operator", "ranks", "shapes", "equal to golden", "time (us)")
ALIGN = "<><<>"


@dataclass
class Outcome:
    """One row of the table."""

    operator: str
    shapes: str
    results: list[npt.NDArray[Any]]
    expected: list[npt.NDArray[Any]]
    seconds: float
    bounds: list[npt.NDArray[np.float64]] | None = None  # None: equal means bit for bit

    def wrong(self, rank: int) -> npt.NDArray[np.bool_]:
        """Where the result of a rank differs from golden."""
        got, expected = self.results[rank], self.expected[rank]
        if got.shape != expected.shape:
            return np.ones(got.shape, np.bool_)
        if self.bounds is None:
            return differs(got, expected, name_of(expected))
        return np.asarray(~(np.abs(got - expected) <= self.bounds[rank]))  # a NaN is wrong, too

    def findings(self) -> list[str]:
        """A line per rank whose result differs: the first place, and the number of places."""
        found = (self._finding(rank) for rank in range(len(self.results)))
        return [f"{self.operator}, rank {rank}, {text}" for rank, text in enumerate(found) if text]

    def _finding(self, rank: int) -> str:
        got, expected, wrong = self.results[rank], self.expected[rank], self.wrong(rank)
        if got.shape != expected.shape:
            return f"shape: got {list(got.shape)}, expected {list(expected.shape)}"
        if not wrong.any():
            return ""
        index = tuple(np.argwhere(wrong)[0].tolist())
        others = int(wrong.sum()) - 1
        more = f", and {others} more" if others else ""
        return f"index {list(index)}: got {got[index]}, expected {expected[index]}{more}"

    def verdict(self) -> str:
        """The result of the comparison in a few words."""
        if self.findings():
            return "NO"
        return "yes, every bit" if self.bounds is None else "yes, in bound"


def table(outcomes: Sequence[Outcome]) -> str:
    """A table with aligned columns, a row per outcome, and the differences under each row."""
    cells = [
        (o.operator, str(len(o.results)), o.shapes, o.verdict(), f"{o.seconds * 1e6:,.0f}")
        for o in outcomes
    ]
    dashes = ["-" * width for width in widths_of([HEAD, *cells])]
    head, rule, *rows = aligned([HEAD, dashes, *cells], ALIGN)
    lines = [head, rule]
    for row, outcome in zip(rows, outcomes, strict=True):
        lines += [row, *(f"  {finding}" for finding in outcome.findings())]
    return "\n".join(lines)


RANKS = 4
CALLS, LAYER_CALLS = 7, 3
MLP_ROWS = 13
WIDTH = uneven_batch.WIDTH
# The example of docs/operators/all_gather_v.md; ReduceScatterV reduces into the same blocks.
COUNTS, DISPLS, ROWS = [4, 2], [0, 4], 5
GATHER_X = [
    np.array([[0, 1, 2, 3], [4, 5, 6, 7]], np.float16),
    np.array([[3, 2, 1, 0], [7, 6, 5, 4], [7, 6, 5, 4]], np.float16),
]
SCATTER_X = [fill((ROWS, 4), "float16", rank, kind="random") for rank in range(2)]


def run_layer() -> Outcome:
    """The transformer layer of examples/uneven_batch.py, whole documents to rows of documents."""
    documents = uneven_batch.read_documents()
    shares = uneven_batch.deal(documents, RANKS)
    expected, bound = uneven_batch.whole_layer(documents)
    ends = np.cumsum(_tokens(shares))[:-1]
    shapes = f"{_sum(map(len, shares))} documents, {len(expected)} x {WIDTH}"
    outcome = _run("transformer layer", shapes, np.split(expected, ends), _layer, shares)
    outcome.bounds = np.split(bound, ends)
    return outcome


def _layer(rank: int, shares: Sequence[Sequence[bytes]]) -> Measured:
    weights = uneven_batch.make_weights()
    with collops.init() as comm:
        call = partial(uneven_batch.layer, comm, shares, weights)
        return _measured(call, calls=LAYER_CALLS)


def run_grid() -> Outcome:
    """The MLP of examples/tensor_parallel_linear.py on a grid of ranks: exact, so bit for bit."""
    problem = tensor_parallel_linear.make_problem(MLP_ROWS)
    width, hidden = tensor_parallel_linear.WIDTH, tensor_parallel_linear.HIDDEN
    shapes = f"{_sum(problem.rows)} rows x {width} -> {hidden} -> {width}"
    whole = tensor_parallel_linear.whole_mlp(problem)
    return _run("2 x 2 tensor-parallel MLP", shapes, whole, _grid)


def _grid(rank: int) -> Measured:
    problem = tensor_parallel_linear.make_problem(MLP_ROWS)
    with collops.init() as comm:
        call = partial(tensor_parallel_linear.mlp, comm, problem)
        return _measured(call, calls=LAYER_CALLS)


def run_plain() -> list[Outcome]:
    """The two collectives of the layer alone, on other data of the same shapes."""
    rows = _tokens(uneven_batch.deal(uneven_batch.read_documents(), RANKS))
    counts = [n * WIDTH for n in rows]
    whole = sum(rows)
    xs = [fill((n, WIDTH), "float32", rank, kind="random") for rank, n in enumerate(rows)]
    gathered = [all_gather_v(xs, counts, packed(counts), whole)] * RANKS
    parts = [fill((whole, WIDTH), "float32", rank, kind="random") for rank in range(RANKS)]
    reduced = reduce_scatter_v(parts, counts, packed(counts), rows)
    return [
        _run(name, shapes, expected, _plain, name, rows)
        for name, shapes, expected in (
            ("all_gatherv", f"{_sum(rows)} -> {whole} rows x {WIDTH}", gathered),
            ("reduce_scatterv", f"{whole} -> {_sum(rows)} rows x {WIDTH}", reduced),
        )
    ]


def _plain(rank: int, name: str, rows: Sequence[int]) -> Measured:
    given, got = rows[rank], sum(rows)
    if name == "reduce_scatterv":
        given, got = got, given
    with collops.init() as comm:
        x = comm.empty((given, WIDTH), np.float32)
        x[:] = fill(x.shape, "float32", rank, kind="random")
        out = np.empty((got, WIDTH), np.float32)
        return _measured(lambda: getattr(comm, name)(x, sizes=rows, out=out), out)


def run_all_gather_v() -> Outcome:
    """The example of AllGatherV at the ATB level: blocks that end inside rows, and a gap."""
    expected = [all_gather_v(GATHER_X, COUNTS, DISPLS, ROWS)] * 2
    shapes = "[2, 4] [3, 4] -> [5, 4] float16"
    return _run("AllGatherV", shapes, expected, _two_phases, "AllGatherV", GATHER_X)


def run_reduce_scatter_v() -> Outcome:
    """ReduceScatterV of the same blocks of [5, 4], into rows like those of x of AllGatherV."""
    expected = reduce_scatter_v(SCATTER_X, COUNTS, DISPLS, list(map(len, GATHER_X)))
    shapes = "[5, 4] -> [2, 4] [3, 4] float16"
    return _run("ReduceScatterV", shapes, expected, _two_phases, "ReduceScatterV", SCATTER_X)


def _two_phases(rank: int, operator: str, xs: Sequence[Array]) -> Measured:
    """Plans once and executes several times; measures execute()."""
    struct = getattr(collops, f"{operator}Param")
    operation = collops.Operation(struct(rank=rank, rank_size=2, backend="shm", comm_domain="demo"))
    counts, displs = np.array(COUNTS, np.int64), np.array(DISPLS, np.int64)
    blocks, rows = [counts, displs, counts[[rank]]], len(GATHER_X[rank])
    if operator == "AllGatherV":  # what a rank sends comes first
        blocks, rows = [counts[[rank]], counts, displs], ROWS
    ins, out = [xs[rank], *blocks, np.empty(rows, np.float16)], np.empty((rows, 4), np.float16)
    workspace = np.empty(operation.get_workspace_size(ins, [out]), np.uint8)
    return _measured(lambda: operation.execute(ins, [out], workspace), out)


def _measured(call: Callable[[], Any], out: Array | None = None, calls: int = CALLS) -> Measured:
    """The last result and the median time of several calls; `out` is poisoned before each.

    A first call, which is not measured, completes first contact and maps the peers' memory.
    """
    seconds = []
    for _ in range(1 + calls):
        if out is not None:
            out[...] = poison(out.shape, out.dtype.name)
        begin = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - begin)
    return out if out is not None else result, statistics.median(seconds[1:])


def _run(
    operator: str, shapes: str, expected: list[Array], fn: Callable[..., Measured], *arguments: Any
) -> Outcome:
    """Runs a call on as many ranks as there are results; its time is that of the slowest one."""
    results, seconds = zip(*run_ranks(fn, len(expected), *arguments), strict=True)
    return Outcome(operator, shapes, list(results), expected, max(seconds))


def _tokens(shares: Sequence[Sequence[bytes]]) -> list[int]:
    return [sum(map(len, documents)) for documents in shares]


def _sum(numbers: Iterable[int]) -> str:
    return "+".join(map(str, numbers))
