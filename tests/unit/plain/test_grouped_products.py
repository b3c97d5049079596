"""The plain level's grouped products: counts given and asked for, every library, there and back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from collops.golden.operators.linear_parallel.experts import experts
from collops.golden.operators.linear_parallel.groups import LinearParallel
from collops.golden.operators.linear_parallel.quantised import PER_CHANNEL, PER_TOKEN, Scales

import collops
from collops.testing import run_ranks
from patience import patience

LIMIT_S = patience(60)
K, N, EXPERTS = 70, 9, 3


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    """Small whole numbers, whose sums are exact, different on every rank and in every position."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def table(ranks: int) -> Any:
    """Rows of each rank for each expert of all; some have none."""
    tokens = np.random.default_rng(ranks).integers(0, 7, (ranks, ranks * EXPERTS))
    tokens[:, 1] = 0
    tokens[-1, -1] = 50
    return tokens


def wanted(ranks: int, kind: int, xs: list[Any], trans: bool, residual: bool) -> list[Any]:
    call = LinearParallel(
        kind, ranks, trans_weight=trans, local_experts=EXPERTS, ep_size=ranks, tp_size=1
    )
    added = [numbers((N,), 70 + r) for r in range(ranks)] if residual else []
    return experts(
        call, xs, [weight(r, trans) for r in range(ranks)], table(ranks), residuals=added
    )


def weight(rank: int, trans: bool) -> Any:
    return numbers((EXPERTS, N, K) if trans else (EXPERTS, K, N), 30 + rank)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("trans", [False, True])
def test_there_and_back(ranks: int, trans: bool) -> None:
    tokens = table(ranks)
    xs = [numbers((int(tokens[r].sum()), K), r) for r in range(ranks)]
    there = wanted(ranks, 5, xs, trans, residual=False)
    with_residual = wanted(ranks, 5, xs, trans, residual=True)
    back = [wanted(ranks, 6, received(tokens, xs), trans, residual=r) for r in (False, True)]

    def work(rank: int) -> None:
        with collops.init() as comm:
            x, w, residual = xs[rank], weight(rank, trans), numbers((N,), 70 + rank)
            sends = tokens[rank].reshape(ranks, EXPERTS)
            receives = tokens[:, rank * EXPERTS : (rank + 1) * EXPERTS].tolist()
            for counts in ((sends,), (sends.tolist(), receives)):
                words: dict[str, Any] = {"trans_weight": trans}
                y, rows = comm.all_to_allv_grouped_matmul(x, w, *counts, return_rows=True, **words)
                assert np.array_equal(y, there[rank])
                assert np.array_equal(rows, received(tokens, xs)[rank])
                out = np.full_like(y, 9)
                words["max_rows"] = len(y)
                got = comm.all_to_allv_grouped_matmul(
                    x, w, *counts, out=out, residual=residual, **words
                )
                assert got is out
                assert np.array_equal(out, with_residual[rank])
                del words["max_rows"]
                z = comm.grouped_matmul_all_to_allv(rows, w, *counts, **words)
                assert np.array_equal(z, back[0][rank])
                z = comm.grouped_matmul_all_to_allv(rows, w, *counts, residual=residual, **words)
                assert np.array_equal(z, back[1][rank])

    run_ranks(work, ranks, timeout=LIMIT_S)


def received(tokens: Any, xs: list[Any]) -> list[Any]:
    """The rows of each rank's experts."""
    ranks = len(xs)
    begins = np.concatenate([np.zeros((ranks, 1), int), np.cumsum(tokens, 1)], 1)
    return [
        np.concatenate(
            [
                xs[s][begins[s, e] : begins[s, e] + tokens[s, e]]
                for e in range(r * EXPERTS, (r + 1) * EXPERTS)
                for s in range(ranks)
            ]
        )
        for r in range(ranks)
    ]


@pytest.mark.parametrize("with_x_scale", [False, True])
@pytest.mark.parametrize("out_dtype", [None, "float16"])
def test_int8_there_and_back(with_x_scale: bool, out_dtype: str | None) -> None:
    ranks, tokens = 3, table(3)
    draw = [np.random.default_rng(r) for r in range(ranks)]
    rows = [int(tokens[r].sum()) for r in range(ranks)]
    xs = [draw[r].integers(-128, 128, (rows[r], K)).astype(np.int8) for r in range(ranks)]
    weights = [draw[r].integers(-128, 128, (EXPERTS, K, N)).astype(np.int8) for r in range(ranks)]
    scales = [draw[r].normal(size=(EXPERTS, N)).astype(np.float32) / 64 for r in range(ranks)]
    x_scales = [draw[r].normal(size=rows[r]).astype(np.float32) for r in range(ranks)]
    moved, moved_scales = received(tokens, xs), received(tokens, x_scales)

    def golden(kind: int, xs: list[Any], x_scales: list[Any]) -> list[Any]:
        call = LinearParallel(
            kind,
            ranks,
            trans_weight=False,
            local_experts=EXPERTS,
            ep_size=ranks,
            quant_type=PER_TOKEN if with_x_scale else PER_CHANNEL,
            out_dtype=out_dtype or "float32",
        )
        given = x_scales if with_x_scale else [None] * ranks
        of_ranks = [Scales(s, token_scale=t) for s, t in zip(scales, given, strict=True)]
        return experts(call, xs, weights, tokens, scales=of_ranks)

    there, back = golden(5, xs, x_scales), golden(6, moved, moved_scales)

    def work(rank: int) -> None:
        with collops.init() as comm:
            sends, words = tokens[rank].reshape(ranks, EXPERTS), {"scale": scales[rank]}
            if out_dtype:
                words["out_dtype"] = out_dtype
            x_scale = {"x_scale": x_scales[rank]} if with_x_scale else {}
            y, rows = comm.all_to_allv_grouped_matmul(
                xs[rank], weights[rank], sends, return_rows=True, **words, **x_scale
            )
            assert y.dtype == there[rank].dtype
            assert y.tobytes() == there[rank].tobytes()
            assert np.array_equal(rows, moved[rank])
            x_scale = {"x_scale": moved_scales[rank]} if with_x_scale else {}
            z = comm.grouped_matmul_all_to_allv(rows, weights[rank], sends, **words, **x_scale)
            assert z.tobytes() == back[rank].tobytes()

    run_ranks(work, ranks, timeout=LIMIT_S)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_torch_and_a_started_call(dtype: str) -> None:
    torch = pytest.importorskip("torch")

    def work(rank: int) -> None:
        with collops.init() as comm:
            x = torch.from_numpy(numbers((4, K), rank)).to(getattr(torch, dtype))
            w = torch.from_numpy(weight(rank, False)).to(x.dtype)
            counts = torch.tensor([[1, 0, 1], [0, 2, 0]])
            lists = counts.tolist()
            started = comm.start("all_to_allv_grouped_matmul", x, w, lists)
            lists[0][0] = 5  # the call has a copy
            y = started.wait()
            y2, rows = comm.all_to_allv_grouped_matmul(x, w, counts, return_rows=True)
            assert y.dtype == x.dtype
            assert torch.equal(y, y2)
            first = 0 if rank == 0 else 2
            mine = [numbers((4, K), s)[first : first + 2] for s in range(2)]
            both = [rows[:1] for rows in mine] + [rows[1:] for rows in mine]
            both = both if rank == 0 else mine
            assert np.array_equal(rows.float().numpy(), np.concatenate(both))
            numpy_dtype = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
            locals_ = (0, 0, 2, 2) if rank == 0 else (1, 1, 1, 1)
            want = np.stack(
                [
                    row @ weight(rank, False)[e]
                    for row, e in zip(np.concatenate(both), locals_, strict=True)
                ]
            ).astype(numpy_dtype)
            assert np.array_equal(y.float().numpy(), want.astype(np.float32))

    run_ranks(work, 2, timeout=LIMIT_S)
