"""Products of int8: bit for bit golden's, with struct and plain method, on every engine."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from golden.operators.linear_parallel.groups import LinearParallel
from golden.operators.linear_parallel.quantised import Scales
from golden.operators.linear_parallel.reference import linear_parallel

import collops
from collops.testing import run_ranks

ENGINES: dict[str, tuple[str, dict[str, str]]] = {
    "windows": ("shm", {}),
    "pipeline": ("shm", {"COLLOPS_FUSED": "0"}),
    "portable": ("shm", {"COLLOPS_ISA": "portable"}),
    "ucx": ("ucx", {}),
}
K, N = 1030, 389  # past one exact block and past one strip
PER_TENSOR, PER_CHANNEL, PER_GROUP, PER_TOKEN = range(4)
BF16, F16 = 27, 1


def draw(rank: int, *what: int) -> np.random.Generator:
    """Numbers that differ in every rank and position."""
    return np.random.default_rng([rank, *what])


def int8(rank: int, *shape: int) -> Any:
    return draw(rank, *shape).integers(-128, 128, shape).astype(np.int8)


def floats(rank: int, *shape: int) -> Any:
    return draw(rank, 7, *shape).normal(size=shape).astype(np.float32)


def rows_of(rank: int, size: int) -> int:
    """Uneven, and none on rank 1 of three or more."""
    return 0 if rank == 1 and size > 2 else 3 + 60 * (rank % 2) + rank


def same_bits(got: Any, want: Any) -> bool:
    """Equal but for the bits of NaNs; bfloat16 of golden is uint16."""
    want = want.view(ml_dtypes.bfloat16) if want.dtype == np.uint16 else want
    return got.dtype == want.dtype and np.array_equal(
        got.astype(np.float32), want.astype(np.float32), equal_nan=True
    )


class W8A8:
    """The tensors of a rank's product."""

    def __init__(self, rank: int, rows: int, trans: bool) -> None:
        self.x = int8(rank, rows, K)
        self.weight = int8(rank, N, K) if trans else int8(rank, K, N)
        self.scale = floats(rank, N) / 64
        self.bias = draw(rank, 3).integers(-(2**31), 2**31, N).astype(np.int32)
        self.x_scale = floats(rank, rows)

    @property
    def scales(self) -> Scales:
        return Scales(self.scale, self.bias, self.x_scale)


def call(comm: Any, kind: int, own: W8A8, rows: list[int], trans: bool) -> Any:
    args: dict[str, Any] = {
        "scale": own.scale,
        "bias": own.bias,
        "x_scale": own.x_scale,
        "trans_weight": trans,
        "out_dtype": ml_dtypes.bfloat16,
    }
    if kind == 0:
        return comm.matmul_all_reduce(own.x, own.weight, **args)
    if kind == 1:
        return comm.matmul_reduce_scatter(own.x, own.weight, **args)
    if kind == 2:
        return comm.all_gather_matmul(own.x, own.weight, rows, **args)
    grid = {"ag_dim": comm.size // 2, "rs_dim": 2}
    return comm.all_gather_matmul_reduce_scatter(own.x, own.weight, **grid, **args)


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("kind", [0, 1, 2, 4])
def test_w8a8_is_exact(engine: str, kind: int) -> None:
    size = 4 if kind == 4 else 3
    rows = [rows_of(r, size) if kind == 2 else 70 for r in range(size)]
    backend, env = ENGINES[engine]

    def work(rank: int) -> list[Any]:
        with collops.init(backend=backend) as comm:
            return [
                call(comm, kind, W8A8(rank, rows[rank], trans), rows, trans)
                for trans in (False, True)
            ]

    results = run_ranks(work, size, env=env)
    for i, trans in enumerate((False, True)):
        own = [W8A8(r, rows[r], trans) for r in range(size)]
        lists = (tuple(rows),) * size if kind == 2 else ()
        even = tuple(len(part) for part in np.array_split(range(rows[0]), size))
        reference = LinearParallel(
            kind,
            size,
            ag_dim=size // 2,
            rs_dim=2,
            trans_weight=trans,
            gather_rows=lists,
            scatter_rows=(even,) * size if kind == 1 else (),
            quant_type=PER_CHANNEL,
            out_dtype="bfloat16",
        )
        want = linear_parallel(
            reference, [o.x for o in own], [o.weight for o in own], scales=[o.scales for o in own]
        )
        for rank in range(size):
            assert same_bits(results[rank][i], want[rank][0]), (trans, rank)


@pytest.mark.parametrize("quant_type", [PER_TENSOR, PER_CHANNEL, PER_TOKEN])
def test_the_struct_takes_w8a8(quant_type: int) -> None:
    """With an int64 scale, of which the upper half is rubbish, and a bias that is not there."""

    def tensors(rank: int) -> tuple[W8A8, Any]:
        own = W8A8(rank, 6, True)
        count = 1 if quant_type == PER_TENSOR else N
        bits = own.scale[:count].view(np.uint32).astype(np.int64)
        return own, bits + (np.arange(count) + rank << 32)

    def work(rank: int) -> Any:
        own, scale = tensors(rank)
        param = collops.LinearParallelParam(
            rank=rank, rank_size=2, backend="lcoc", quant_type=quant_type, out_data_type=F16
        )
        ins = [own.x, own.weight, np.empty(0, np.int32), scale]
        ins += [own.x_scale] if quant_type == PER_TOKEN else []
        op = collops.Operation(param)
        results = op.forward(ins)
        op.prepack(own.weight)
        assert same_bits(op.forward(ins)[0], results[0])
        return results[0]

    results = run_ranks(work, 2, env={"COLLOPS_BACKEND": "shm"})
    own = [tensors(r) for r in range(2)]
    scales = [Scales(s, None, o.x_scale if quant_type == PER_TOKEN else None) for o, s in own]
    reference = LinearParallel(0, 2, quant_type=quant_type, out_dtype="float16")
    want = linear_parallel(
        reference, [o.x for o, _ in own], [o.weight for o, _ in own], scales=scales
    )
    for rank in range(2):
        assert same_bits(results[rank], want[rank][0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("group_size", [0, 1, 100, K])
def test_an_int8_weight_alone(dtype: Any, group_size: int) -> None:
    """Whole numbers and powers of two, so that sums are exact."""

    def tensors(rank: int, rows: int) -> tuple[Any, ...]:
        groups = -(-K // group_size) if group_size else 1
        x = draw(rank, 1).integers(-1, 2, (rows, K)).astype(dtype)
        weight = draw(rank, 2).integers(-8, 8, (K, N)).astype(np.int8)
        scale = (2.0 ** draw(rank, 3).integers(-2, 2, (groups, N))).astype(dtype)
        offset = draw(rank, 4).integers(-4, 5, (groups, N)).astype(dtype)
        return x, weight, scale, offset

    def work(rank: int) -> list[Any]:
        with collops.init() as comm:
            results = []
            for rows in (2, 70):
                x, weight, scale, offset = tensors(rank, rows)
                results += [
                    comm.matmul_all_reduce(
                        x, w, scale=scale, bias=offset, group_size=group_size, trans_weight=trans
                    )
                    for trans, w in ((False, weight), (True, np.ascontiguousarray(weight.T)))
                ]
            return results

    results = run_ranks(work, 2)
    for i, rows in enumerate((2, 2, 70, 70)):
        total = np.zeros((rows, N), np.float32)
        for rank in range(2):
            x, weight, scale, offset = (t.astype(np.float32) for t in tensors(rank, rows))
            group = np.arange(K) // (group_size or K)
            total += x @ ((weight + offset[group]) * scale[group])
        for rank in range(2):
            assert np.array_equal(results[rank][i], total.astype(dtype)), i
