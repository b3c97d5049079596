"""LinearParallel's two types with experts: every routing that is hard, bit for bit, and its limits.

The numbers are small whole ones, so that sums are exact and what is rounded once is equal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience

LIMIT_S = patience(60)
TO_EXPERTS = collops.ParallelType.ALLTOALLVC_ALL_GATHER_GMM
FROM_EXPERTS = collops.ParallelType.GMM_REDUCE_SCATTER_ALLTOALLVC
DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)


class Grid(NamedTuple):
    """How the ranks share the experts."""

    ep: int
    tp: int
    experts: int = 2

    @property
    def ranks(self) -> int:
        return self.ep * self.tp

    def rows_of_experts(self, tokens: Any, rank: int) -> list[tuple[int, int, int, int]]:
        """(expert, source, first row of the source, rows), in the order in which they lie."""
        place = rank // self.tp
        begins = np.concatenate([np.zeros((self.ep, 1), int), np.cumsum(tokens, 1)], 1)
        numbers = [place * self.experts + local for local in range(self.experts)]
        return [
            (e - numbers[0], s, int(begins[s // self.tp, e]), int(tokens[s // self.tp, e]))
            for e in numbers
            for s in range(self.ranks)
        ]


def routings(grid: Grid) -> dict[str, Any]:
    """Tables of rows by what is special in them."""
    shape = (grid.ep, grid.ep * grid.experts)
    draw = np.random.default_rng(17)
    uneven = draw.integers(0, 9, shape)
    one_expert = np.zeros(shape, int)
    one_expert[:, -1] = 7 + np.arange(grid.ep)
    one_source = np.zeros(shape, int)
    one_source[-1] = 1 + np.arange(shape[1])
    long = draw.integers(0, 3, shape)
    long[0] = 47, *range(48, 47 + shape[1])
    no_expert = uneven.copy()
    no_expert[:, 0] = 0
    return {
        "uneven": uneven,
        "none": np.zeros(shape, int),
        "one expert gets all": one_expert,
        "one place sends all": one_source,
        "an expert without rows": no_expert,
        "whole panels and rests": long,
        "one row": np.eye(*shape, 1, dtype=int),
    }


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    """Small whole numbers that differ between ranks and positions."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def spare(rank: int) -> int:
    """Rows that a tensor has beyond those of the table, which nobody reads."""
    return 2 * (rank % 2)


class Layer:
    """A call of all ranks, and what each must get."""

    def __init__(self, grid: Grid, kind: int, tokens: Any, k: int, n: int, residual: bool) -> None:
        self.grid, self.kind, self.tokens = grid, kind, tokens
        self.routes = [grid.rows_of_experts(tokens, rank) for rank in range(grid.ranks)]
        of_experts = [sum(rows for *_, rows in route) for route in self.routes]
        own = [int(tokens[rank // grid.tp].sum()) for rank in range(grid.ranks)]
        x_rows, out_rows = (own, of_experts) if kind == TO_EXPERTS else (of_experts, own)
        each = range(grid.ranks)
        self.xs = [numbers((x_rows[r] + spare(r), k), 10 + r) for r in each]
        self.weights = [numbers((grid.experts, n, k), 50 + r) for r in each]
        self.residuals = [numbers((n,), 90 + r) if residual else None for r in each]
        self.most = [out_rows[r] + spare(r + 1) for r in each]

    def wanted(self, rank: int, dtype: Any) -> Any:
        out = np.zeros((self.most[rank], self.weights[0].shape[1]), np.float32)
        added = self.residuals[rank]
        added = 0 if added is None else added
        if self.kind == TO_EXPERTS:
            at = 0
            for local, source, first, rows in self.routes[rank]:
                x = self.xs[source][first : first + rows]
                out[at : at + rows] = x @ self.weights[rank][local].T + added
                at += rows
            return out.astype(dtype)
        for holder, route in enumerate(self.routes):
            at = 0
            for local, source, first, rows in route:
                if source == rank:
                    x = self.xs[holder][at : at + rows]
                    out[first : first + rows] += x @ self.weights[holder][local].T
                at += rows
        out[: self.tokens[rank // self.grid.tp].sum()] += added
        return out.astype(dtype)

    def call(self, comm: collops.Communicator, dtype: Any, trans_weight: bool, table: Any) -> Any:
        rank = comm.rank
        weight = self.weights[rank].astype(dtype)
        if not trans_weight:
            weight = np.ascontiguousarray(weight.swapaxes(1, 2))
        ins = [self.xs[rank].astype(dtype), weight]
        if self.residuals[rank] is not None:
            ins.append(self.residuals[rank].astype(dtype))
        ins += [table, np.empty(self.most[rank], np.int32)]
        grid = self.grid
        param = collops.LinearParallelParam(
            rank=rank,
            rank_size=comm.size,
            backend=comm.backend,
            hccl_comm=comm,
            type=self.kind,
            trans_weight=trans_weight,
            has_residual=self.residuals[rank] is not None,
            moe_info=collops.MoeInfo(
                local_expert_nums=grid.experts, ep_size=grid.ep, tp_size=grid.tp
            ),
        )
        operation = collops.Operation(param)
        [desc] = operation.infer_shape(ins)
        out = np.full(desc.shape, -77, np.float32).astype(dtype)
        size = operation.get_workspace_size(ins, [out])
        operation.execute(ins, [out], np.full(size, 0xEE, np.uint8))
        return out


GRIDS = [Grid(2, 1), Grid(3, 1, 1), Grid(4, 1), Grid(2, 2), Grid(1, 4, 3), Grid(1, 2, 1)]
RUNS = [*(("shm", grid) for grid in GRIDS), ("ucx", Grid(3, 1)), ("ucx", Grid(2, 2))]


@pytest.mark.parametrize(("backend", "grid"), RUNS, ids=lambda value: str(value))
@pytest.mark.parametrize("kind", [TO_EXPERTS, FROM_EXPERTS])
def test_every_routing(kind: int, backend: str, grid: Grid) -> None:
    def work(rank: int) -> list[str]:
        wrong = []
        with collops.init(backend=backend) as comm:
            for number, (name, tokens) in enumerate(routings(grid).items()):
                k, n = [(33, 5), (1, 385), (300, 1)][number % 3]
                layer = Layer(grid, kind, tokens, k, n, residual=number % 2 == 0)
                for dtype in DTYPES:
                    table = tokens.astype([np.int32, np.int64][number % 2])
                    got = layer.call(comm, dtype, number % 2 == 0, table)
                    want = layer.wanted(rank, dtype)
                    if got.tobytes() != want.tobytes():
                        wrong.append(f"{name}, {np.dtype(dtype).name}: {got} is not {want}")
        return wrong

    for wrong in run_ranks(work, grid.ranks, timeout=LIMIT_S):
        assert wrong == []


PAIR = Grid(2, 1)
TOKENS = np.array([[1, 2, 3, 4], [5, 0, 6, 1]])  # rank 0 has 10 rows and its experts 8


def moved(cell: tuple[int, int], by: int, to: tuple[int, int] | None = None) -> Any:
    """The table with a cell changed, and another one by as much less."""
    tokens = TOKENS.copy()
    tokens[cell] += by
    if to is not None:
        tokens[to] -= by
    return tokens


# Of rank 1, or of both: what the table says, and what every rank is told.
WRONG = [
    (TO_EXPERTS, moved((0, 0), 4), "rank 0 sends 14 rows by globalTokensPerExpertMatrix but x has"),
    (TO_EXPERTS, moved((1, 2), 3, (1, 0)), "rank 1 receives 17 rows .* but maxOutputSize is 16"),
    (FROM_EXPERTS, moved((1, 2), 3, (1, 0)), "rank 1 sends back 17 rows by .* but x has 16"),
    (FROM_EXPERTS, moved((0, 0), 3, (1, 0)), "rank 0 gets back 13 rows .* but maxOutputSize is 12"),
    (TO_EXPERTS, moved((1, 3), -2), r"Matrix\[1\]\[3\] must be >= 0, got -1"),
    (TO_EXPERTS, moved((1, 3), 2**63 - 20), r"Matrix up to \[1\]\[3\] exceeds an int64"),
]


@pytest.mark.parametrize(("kind", "tokens", "says"), WRONG)
def test_rows_that_do_not_fit_are_an_error_on_all_ranks(kind: int, tokens: Any, says: str) -> None:
    def work(rank: int) -> None:
        with collops.init(backend="shm") as comm:
            layer = Layer(PAIR, kind, TOKENS, 3, 2, residual=False)
            layer.most = [12, 16] if kind == FROM_EXPERTS else [10, 16]
            if kind == FROM_EXPERTS:
                layer.xs[1] = numbers((16, 3), 3)
            with pytest.raises(collops.Error, match=says):
                layer.call(comm, np.float32, True, tokens)
            good = Layer(PAIR, kind, TOKENS, 3, 2, residual=False)
            got = good.call(comm, np.float32, True, TOKENS)
            assert got.tobytes() == good.wanted(rank, np.float32).tobytes()

    run_ranks(work, 2, timeout=LIMIT_S)


@pytest.mark.parametrize("kind", [TO_EXPERTS, FROM_EXPERTS])
@pytest.mark.parametrize(
    ("other", "says"),
    [
        (moved((1, 0), -1), r"the rows (sent|received)\[\d\] is \d+ on rank \d"),
        (moved((1, 2), 1, (1, 3)), "a hash of globalTokensPerExpertMatrix is"),
        (moved((0, 0), 1, (0, 1)), "a hash of globalTokensPerExpertMatrix is"),
    ],
    ids=["one cell", "another row's experts", "equal sums of a pair"],
)
def test_tables_that_differ_are_an_error_on_all_ranks(kind: int, other: Any, says: str) -> None:
    def work(rank: int) -> None:
        with collops.init(backend="shm") as comm:
            layer = Layer(PAIR, kind, TOKENS, 3, 2, residual=False)
            with pytest.raises(collops.RankMismatchError, match=says):
                layer.call(comm, np.float32, True, other if rank else TOKENS)

    run_ranks(work, 2, timeout=LIMIT_S)


def test_an_engine_that_knows_no_experts_is_refused_by_name() -> None:
    info = collops.MoeInfo(ep_size=2)
    param = collops.LinearParallelParam(rank_size=2, backend="shm", type=TO_EXPERTS, moe_info=info)
    operation = collops.Operation(param, engine="windows")
    ins = [numbers((2, 3), 0), numbers((1, 2, 3), 1), np.ones((2, 2), int), np.empty(4, np.int32)]
    with pytest.raises(collops.UnsupportedError, match="it does not run types with experts"):
        operation.get_workspace_size(ins, [np.empty((4, 2), np.float32)])


def test_a_plan_is_kept_whatever_the_table_says() -> None:
    def work(rank: int) -> None:
        with collops.init(backend="shm") as comm:
            param = collops.LinearParallelParam(
                rank=rank,
                rank_size=2,
                backend="shm",
                hccl_comm=comm,
                type=TO_EXPERTS,
                moe_info=collops.MoeInfo(local_expert_nums=1, ep_size=2),
            )
            operation = collops.Operation(param)
            tokens = np.zeros((2, 2), np.int32)
            x, weight = numbers((4, 3), rank), numbers((1, 2, 3), 5 + rank)
            ins, out = [x, weight, tokens, np.empty(8, np.int32)], np.empty((8, 2), np.float32)
            workspace = np.empty(operation.get_workspace_size(ins, [out]), np.uint8)
            for step in range(4):
                tokens[...] = [[step, 4 - step], [0, step]]
                operation.execute(ins, [out], workspace)
                rows = [x[:step]] if rank == 0 else [numbers((4, 3), 0)[step:], x[:step]]
                want = np.zeros((8, 2), np.float32)
                want[: sum(map(len, rows))] = np.concatenate(rows) @ weight[0].T
                assert np.array_equal(out, want), step

    run_ranks(work, 2, timeout=LIMIT_S)
