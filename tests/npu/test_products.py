"""LinearParallel on NPU tensors, against products that are made here.

The numbers are small and whole, so that the float32 sums are exact: one rounding is left.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

Kind = collops.ParallelType
DTYPES = ("float32", "float16", "bfloat16")
SLOW = {"COLLOPS_SIM_DELAY_US": "2000"}


class Product:
    """The tensors of all ranks of one product, and what it should become."""

    def __init__(self, torch: ModuleType, kind: Kind, ranks: int, **fields: Any) -> None:
        self.torch, self.kind, self.ranks, self.fields = (
            torch,
            kind,
            ranks,
            {"trans_weight": False} | fields,
        )
        self.k, self.n = self.fields.pop("k", 5), self.fields.pop("n", 7)
        self.dtype = getattr(torch, self.fields.pop("dtype", "float32"))
        rows = self.fields.pop("rows", None)
        self.grid = self.fields.pop("grid", None)
        self.ag, self.rs, self.inner = self.grid or self.plain_grid()
        self.gather = rows or self.fields.get("gather_rows") or [2] * self.ag
        self.total = sum(self.gather)
        self.scatter = self.fields.get("scatter_rows") or [
            len(part) for part in np.array_split(range(self.total), self.rs)
        ]
        self.seed = 0

    def plain_grid(self) -> tuple[int, int, int]:
        if self.kind == Kind.ALL_GATHER_LINEAR:
            return self.ranks, 1, 1
        return 1, 1 if self.kind == Kind.PURE_LINEAR else self.ranks, 1

    def places(self, rank: int) -> tuple[int, int]:
        """In the gather group and in the scatter group."""
        if self.inner:
            return rank % self.ag, rank // self.ag
        return rank // self.rs, rank % self.rs

    def rank_at(self, gather: int, scatter: int) -> int:
        return scatter * self.ag + gather if self.inner else gather * self.rs + scatter

    def numbers(self, *shape: int, seed: int) -> Any:
        count = int(np.prod(shape))
        numbers = (self.torch.arange(count) * 7 + seed * 11 + self.seed) % 5 - 1
        return numbers.reshape(shape).to(self.dtype)

    def x(self, rank: int) -> Any:
        return self.numbers(self.gather[self.places(rank)[0]], self.k, seed=rank)

    def weight(self, rank: int) -> Any:
        made = self.numbers(self.k, self.n, seed=rank + 50)
        return made.t().contiguous() if self.fields["trans_weight"] else made

    def inputs(self, rank: int) -> list[Any]:
        found = [self.x(rank), self.weight(rank)]
        if self.fields.get("has_residual"):
            found.append(self.numbers(self.n, seed=rank + 90))
        return found

    def gathered(self, scatter: int) -> Any:
        return self.torch.cat([self.x(self.rank_at(g, scatter)) for g in range(self.ag)])

    def wanted(self, rank: int) -> list[Any]:
        gather, scatter = self.places(rank)
        total = self.torch.zeros(self.total, self.n)
        for s in [scatter] if self.kind == Kind.PURE_LINEAR else range(self.rs):
            weight = self.weight(self.rank_at(gather, s)).float()
            if self.fields["trans_weight"]:
                weight = weight.t()
            total += self.gathered(s).float() @ weight
        if self.kind in (Kind.LINEAR_REDUCE_SCATTER, Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER):
            begin = sum(self.scatter[:scatter])
            total = total[begin : begin + self.scatter[scatter]]
        if self.fields.get("has_residual"):
            total = total + self.inputs(rank)[2].float()
        outputs = [total.to(self.dtype)]
        return outputs + ([self.gathered(scatter)] if self.fields.get("keep_intermediate") else [])

    def operation(self, rank: int, **more: Any) -> collops.Operation:
        fields = {"rank": rank, "rank_size": self.ranks, "type": self.kind}
        if self.grid:
            ag, rs, inner = self.grid
            info = collops.TwoDimTPInfo(ag_dim=ag, rs_dim=rs, inner_dim_is_ag=inner)
            fields["two_dim_tp_info"] = info
        return collops.Operation(collops.LinearParallelParam(**fields, **self.fields, **more))

    def check(self, rank: int, outputs: list[Any]) -> str:
        """What is wrong with the outputs."""
        for number, (found, want) in enumerate(zip(outputs, self.wanted(rank), strict=True)):
            if not self.torch.equal(found.cpu(), want):
                return f"{self.kind.name} {self.fields} {self.dtype}: output {number} of {rank}"
        return ""


def run(npu: Any, torch: ModuleType, products: list[Product], **env: str) -> None:
    """Each product on its ranks, twice, with an operation of its own."""

    def work(rank: int) -> list[str]:
        npu.choose(rank)
        wrong = []
        for product in products:
            op = product.operation(rank)
            for seed in (0, 3):
                product.seed = seed
                outputs = op.forward([tensor.npu() for tensor in product.inputs(rank)])
                wrong.append(product.check(rank, outputs))
        torch.npu.synchronize()
        return [text for text in wrong if text]

    ranks = products[0].ranks
    assert run_ranks(work, ranks, env=env) == [[]] * ranks


@pytest.mark.parametrize("direct", ["0", "1"])
def test_types_and_options(npu: Any, torch_module: ModuleType, direct: str) -> None:
    """`direct`: whether the simulated aclnnMatmul rounds no product of two bytes."""

    def make(kind: Kind, **fields: Any) -> Product:
        return Product(torch_module, kind, 3, **fields)

    gathers = {"gather_rows": [3, 0, 4]}
    products = []
    for dtype in DTYPES:
        for trans in (False, True):
            plain = {"dtype": dtype, "trans_weight": trans}
            more = plain | {"has_residual": True}
            products += [
                make(Kind.LINEAR_ALL_REDUCE, rows=[4], **(more if trans else plain)),
                make(Kind.LINEAR_REDUCE_SCATTER, rows=[6], **(plain if trans else more)),
                make(Kind.LINEAR_REDUCE_SCATTER, rows=[5], scatter_rows=[4, 0, 1], **more),
                make(Kind.ALL_GATHER_LINEAR, **gathers, keep_intermediate=trans, **plain),
                make(Kind.ALL_GATHER_LINEAR, keep_intermediate=not trans, **more),
                make(Kind.PURE_LINEAR, rows=[3], **(more if trans else plain)),
            ]
    products += [make(kind, rows=[0]) for kind in (Kind.LINEAR_ALL_REDUCE, Kind.PURE_LINEAR)]
    products.append(make(Kind.ALL_GATHER_LINEAR, gather_rows=[0, 0, 2], keep_intermediate=True))
    run(npu, torch_module, products, COLLOPS_SIM_MATMUL_FLOAT_OUT=direct)


def test_grids(npu: Any, torch_module: ModuleType) -> None:
    def make(*grid: int, **fields: Any) -> Product:
        return Product(torch_module, Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER, 4, grid=grid, **fields)

    lists = {"gather_rows": [1, 4], "scatter_rows": [5, 0]}
    # The first one moves nothing; the last one keeps the ranks together until all have come to it.
    products = [
        make(2, 2, 1, gather_rows=[0, 0], scatter_rows=[0, 0]),
        make(2, 2, 1, dtype="float16", has_residual=True, **lists),
        make(2, 2, 0, dtype="bfloat16", trans_weight=True, **lists),
        make(2, 2, 0, gather_rows=[0, 3], scatter_rows=[1, 2]),
        make(4, 1, 1, gather_rows=[2, 0, 1, 3]),
        make(1, 4, 1, rows=[6], scatter_rows=[3, 0, 1, 2], has_residual=True, trans_weight=True),
    ]
    run(npu, torch_module, products, **SLOW)
    run(npu, torch_module, products[:3], COLLOPS_CHECK="1")


def test_strips_and_chunks(npu: Any, torch_module: ModuleType) -> None:
    """Tiles of 16 MiB: three strips of columns; gathers of 8 MiB: uneven chunks of rows."""

    def make(kind: Kind, **fields: Any) -> Product:
        return Product(torch_module, kind, 2, **fields)

    scatter, both = Kind.LINEAR_REDUCE_SCATTER, Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER
    products = [
        make(scatter, rows=[8300], k=3, n=600, dtype="float16", scatter_rows=[8000, 300]),
        make(Kind.LINEAR_ALL_REDUCE, rows=[8300], k=2, n=600, has_residual=True, trans_weight=True),
        make(Kind.ALL_GATHER_LINEAR, gather_rows=[900, 2500], k=2048, n=3, keep_intermediate=True),
        make(both, grid=(2, 1, 1), gather_rows=[2300, 0], k=2048, n=3, dtype="bfloat16"),
    ]
    run(npu, torch_module, products, **SLOW)


def test_two_calls_on_two_streams(npu: Any, torch_module: ModuleType) -> None:
    """Workspaces are freed, and taken and filled by others, once the calls have returned."""

    def work(rank: int) -> list[str]:
        npu.choose(rank)
        torch, wrong = torch_module, []
        kinds = (Kind.LINEAR_REDUCE_SCATTER, Kind.ALL_GATHER_LINEAR)
        products = [Product(torch, kind, 2, has_residual=True) for kind in kinds]
        ops = [p.operation(rank, comm_domain=p.kind.name) for p in products]
        for seed in range(4):
            streams = [torch.npu.Stream() for _ in products]
            outputs = []
            for product, op, stream in zip(products, ops, streams, strict=True):
                product.seed = seed
                ins = [tensor.npu() for tensor in product.inputs(rank)]
                torch.npu.synchronize()
                with torch.npu.stream(stream):
                    outputs.append(op.forward(ins))
                    for tensor in ins:
                        tensor.record_stream(stream)
            rest = [torch.full((1 << 14,), 9.0).npu() for _ in range(8)]
            torch.npu.synchronize()
            assert len(rest) == 8
            wrong += [p.check(rank, out) for p, out in zip(products, outputs, strict=True)]
        return [text for text in wrong if text]

    assert run_ranks(work, 2, env=SLOW) == [[]] * 2


def test_a_captured_product_is_replayed(npu: Any, torch_module: ModuleType) -> None:
    def work(rank: int) -> list[str]:
        npu.choose(rank)
        torch, wrong = torch_module, []
        both = Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER
        product = Product(torch, both, 4, grid=(2, 2, 1), has_residual=True, dtype="float16")
        op = product.operation(rank)
        ins = [tensor.npu() for tensor in product.inputs(rank)]
        outs = op.forward(ins)
        workspace = torch.empty(op.get_workspace_size(ins, outs), dtype=torch.uint8).npu()
        torch.npu.synchronize()
        stream = torch.npu.Stream()
        with npu.captured(stream) as graph:
            op.execute(ins, outs, workspace, stream=stream)
        for seed in range(1, 4):
            product.seed = seed
            for tensor, value in zip(ins, product.inputs(rank), strict=True):
                tensor.copy_(value)
            torch.npu.synchronize()
            graph.replay(stream)
            stream.synchronize()
            wrong.append(product.check(rank, outs))
        graph.destroy()
        return [text for text in wrong if text]

    assert run_ranks(work, 4) == [[]] * 4
