"""LinearParallel on simulated devices, over nccl, cuda and hccl: golden's tensors and results.

Exact data are small whole numbers, with one rounding at the end: they are compared bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from collops.golden.cases import Case, all_outputs, case_bounds, inputs
from collops.golden.data.dtypes import to_float32
from collops.golden.operators.linear_parallel import groups

import collops
from collops.testing import run_ranks
from patience import patience

Kind = collops.ParallelType
Rows = Sequence[int]
# Seconds until the ranks have ended, on a machine that does other things too.
LIMIT_S = patience(110.0)


def product(
    kind: Kind,
    rows: Rows,
    *,
    k: int = 5,
    n: int = 7,
    dtype: str = "float32",
    data: str = "exact",
    grid: tuple[int, int, bool] = (0, 0, True),
    scatter: Sequence[Rows] = (),
    **fields: Any,
) -> Case:
    """A case of golden's whose rank r has rows[r] rows.

    `grid` is agDim, rsDim and innerDimIsAg; `scatter` the scatterRows of every rank. gatherRows
    follow from the rows, unless these are even.
    """
    ag, rs, inner = grid
    call = groups.LinearParallel(int(kind), len(rows), ag, rs, inner, **fields)
    gather: tuple[tuple[int, ...], ...] = ()
    gathers = kind in (Kind.ALL_GATHER_LINEAR, Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER)
    if gathers and (len(set(rows)) > 1 or scatter):
        members = [groups.place(call, rank).gathered for rank in range(len(rows))]
        gather = tuple(tuple(rows[q] for q in own) for own in members)
    call = replace(call, gather_rows=gather, scatter_rows=tuple(tuple(own) for own in scatter))
    shapes = tuple((own, k) for own in rows)
    name = f"{kind.name}-{'-'.join(map(str, rows))}-{dtype}"
    return Case(
        "linear_parallel", name, len(rows), dtype, (), (), shapes, (),
        kind=data, linear=call, columns=n,
    )  # fmt: skip


class Product:
    """One rank's operation and tensors, which stay where they are; all outputs are poisoned."""

    def __init__(
        self, device: Any, case: Case, rank: int, engine: str | None = None, **fields: Any
    ) -> None:
        call = case.linear
        assert call is not None
        lists = {
            "gather_rows": call.gather_rows,
            "scatter_rows": call.scatter_rows,
            "sum_columns": call.sum_columns,
        }
        grid = collops.TwoDimTPInfo(
            ag_dim=call.ag_dim, rs_dim=call.rs_dim, inner_dim_is_ag=int(call.inner_dim_is_ag)
        )
        self.device, self.case, self.rank = device, case, rank
        self.op = collops.Operation(
            collops.LinearParallelParam(
                rank=rank, rank_size=case.rank_size, type=call.type, two_dim_tp_info=grid,
                trans_weight=call.trans_weight, has_residual=call.has_residual,
                keep_intermediate=call.keep_intermediate, sum_leaves=call.sum_leaves,
                **{name: list(rows[rank]) for name, rows in lists.items() if rows}, **fields,
            ),
            engine=engine,
        )  # fmt: skip
        self.inputs = [device.tensor(array, case.dtype) for array in self.arrays(case.seed)]
        shapes = [desc.shape for desc in self.op.infer_shape(self.inputs)]
        self.outputs = [device.poisoned(shape, self.inputs[0]) for shape in shapes]
        self.workspace_bytes = self.op.get_workspace_size(self.inputs, self.outputs)
        self.workspace = self.scratch(self.workspace_bytes)

    def scratch(self, size: int) -> Any:
        return self.device.poisoned((size,), self.device.tensor(np.zeros(1, np.uint8)))

    def arrays(self, seed: int) -> list[Any]:
        return list(inputs(replace(self.case, seed=seed))[self.rank].values())

    def write(self, seed: int) -> None:
        """Other data into the inputs, and nothing that is right into the outputs; waits."""
        for tensor, array in zip(self.inputs, self.arrays(seed), strict=True):
            self.device.write(tensor, array)
        for tensor in self.outputs:
            self.device.poison(tensor)

    def execute(self, stream: Any = None) -> None:
        self.op.execute(self.inputs, self.outputs, self.workspace, stream=stream)

    def values(self, stream: Any) -> list[Any]:
        """What is in the outputs when the stream has finished."""
        return [self.device.array_on(stream, output) for output in self.outputs]

    def run(self, stream: Any) -> list[Any]:
        self.execute(stream)
        return self.values(stream)


def check(case: Case, found: Sequence[Sequence[Any]], seed: int = 0) -> None:
    """Compares the outputs of all ranks with golden's."""
    case = replace(case, seed=seed)
    bounds = case_bounds(case)
    for rank, wanted in enumerate(all_outputs(case)):
        for number, (got, want) in enumerate(zip(found[rank], wanted, strict=True)):
            about = f"{case.name}, output {number} of rank {rank}"
            if bounds is None or number > 0:
                np.testing.assert_array_equal(got, want, err_msg=about)
                continue
            got, want = (
                to_float32(each) if case.dtype == "bfloat16" else each for each in (got, want)
            )
            off = np.abs(got.astype(np.float64) - want.astype(np.float64))
            assert (off <= bounds[rank]).all(), f"{about} is off by up to {off.max()}"


class Place(NamedTuple):
    """Where ranks are: fields of their structs, and whether all of them are on one GPU."""

    fields: dict[str, Any]
    on_one: bool = False

    def run(self, device: Any, ranks: int, work: Callable[[int], Any], **env: str) -> list[Any]:
        """work(rank) of every rank, on its device."""
        threads = self.fields.get("comm_mode") == collops.CommMode.COMM_MULTI_THREAD

        def on_its_device(rank: int) -> Any:
            device.choose(0 if self.on_one else rank)
            return work(rank)

        return run_ranks(on_its_device, ranks, timeout=LIMIT_S, env=env, threads=threads)


def _fields(backend: str, **more: Any) -> dict[str, Any]:
    return {"backend": backend, "comm_domain": "products", **more}


_THREADS = {"comm_mode": collops.CommMode.COMM_MULTI_THREAD}
CUDA = {
    "processes": Place(_fields("cuda")),
    "threads": Place(_fields("cuda", **_THREADS)),
    "threads on one GPU": Place(_fields("cuda", **_THREADS), on_one=True),
}
NCCL, HCCL = Place(_fields("nccl")), Place(_fields("hccl"))
NCCL_ON_ONE = Place(_fields("nccl", **_THREADS), on_one=True)
# Of the devices that are simulated here.
PLACES = {"hccl": HCCL} if "COLLOPS_SIM_CANN" in os.environ else {**CUDA, "nccl": NCCL}


def run_cases(device: Any, cases: Sequence[Case], place: Place, **env: str) -> None:
    """Runs each case twice, with other data, and compares."""

    def work(rank: int) -> list[list[list[Any]]]:
        stream, found = device.stream(), []
        for case in cases:
            call = Product(device, case, rank, **place.fields)
            turns = [call.run(stream)]
            call.write(case.seed + 1)
            found.append([*turns, call.run(stream)])
        return found

    found = place.run(device, cases[0].rank_size, work, **env)
    for number, case in enumerate(cases):
        for turn in range(2):
            check(case, [own[number][turn] for own in found], case.seed + turn)
