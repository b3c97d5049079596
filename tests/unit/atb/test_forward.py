"""forward() again: outputs like the last ones, and when they must be inferred anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks


def gather_inputs(rank: int, rows: list[int], step: int, dtype: str = "f4") -> list[Any]:
    """The inputs of AllGatherV of [rows, 2] on two ranks."""
    x = (np.arange(2 * rows[rank]).reshape(-1, 2) + 100 * rank + 1000 * step).astype(dtype)
    counts = np.array(rows) * 2
    return [x, counts[[rank]], counts, np.array([0, counts[0]]), np.empty(sum(rows), np.float16)]


def gathered(rows: list[int], step: int, dtype: str = "f4") -> np.ndarray:
    """The output of those inputs."""
    return np.concatenate([gather_inputs(rank, rows, step, dtype)[0] for rank in range(2)])


def operation(rank: int) -> collops.Operation:
    """AllGatherV of this rank."""
    return collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm"))


def test_the_same_shapes_again() -> None:
    def call(rank: int) -> None:
        op = operation(rank)
        earlier: list[np.ndarray] = []
        for step in range(4):
            [out] = op.forward(gather_inputs(rank, [1, 3], step))
            np.testing.assert_array_equal(out, gathered([1, 3], step))
            assert not any(np.shares_memory(out, other) for other in earlier)
            earlier.append(out)

    run_ranks(call, 2)


def test_other_shapes_types_and_counts() -> None:
    def call(rank: int) -> None:
        op = operation(rank)
        for step in range(3):
            for rows in ([1, 3], [2, 2], [3, 0], [1, 3]):
                for dtype in ("f4", "i4"):
                    [out] = op.forward(gather_inputs(rank, rows, step, dtype))
                    assert out.dtype == dtype
                    np.testing.assert_array_equal(out, gathered(rows, step, dtype))

    run_ranks(call, 2)


def test_inferring_other_shapes_between_two_calls() -> None:
    def call(rank: int) -> None:
        op = operation(rank)
        for rows in ([1, 3], [2, 3], [2, 4]):
            op.forward(gather_inputs(rank, [1, 3], 0))
            op.infer_shape(gather_inputs(rank, rows, 1))
            [out] = op.forward(gather_inputs(rank, rows, 1))
            np.testing.assert_array_equal(out, gathered(rows, 1))

    run_ranks(call, 2)


def test_inputs_that_are_no_list() -> None:
    def call(rank: int) -> None:
        op = operation(rank)
        for step, kind in enumerate((tuple, list, tuple)):
            [out] = op.forward(kind(gather_inputs(rank, [1, 3], step)))
            np.testing.assert_array_equal(out, gathered([1, 3], step))
        with pytest.raises(collops.Error):
            op.forward(iter(gather_inputs(rank, [1, 3], 3)) if rank else [])  # type: ignore[arg-type]

    run_ranks(call, 2)


def test_torch_after_numpy_of_the_same_shape() -> None:
    torch = pytest.importorskip("torch")

    def call(rank: int) -> None:
        op = operation(rank)
        for step in range(4):
            ins = gather_inputs(rank, [1, 3], step)
            [out] = op.forward([torch.from_numpy(ins[0]), *ins[1:]] if step % 2 else ins)
            assert isinstance(out, torch.Tensor if step % 2 else np.ndarray)
            np.testing.assert_array_equal(np.asarray(out), gathered([1, 3], step))

    run_ranks(call, 2)


def test_an_update_between_two_calls() -> None:
    def call(rank: int) -> None:
        fields = {"rank": rank, "rank_size": 2, "backend": "shm"}
        op = collops.Operation(collops.ReduceScatterVParam(**fields))
        counts = np.array([2, 4])
        x = np.arange(6, dtype="f4").reshape(3, 2) + rank
        ins = [x, counts, np.array([0, 2]), counts[[rank]], np.empty(1 + rank, np.float16)]
        op.forward(ins)
        op.update(collops.ReduceScatterVParam(**fields, reduce_type="max"))
        [out] = op.forward(ins)
        want = np.arange(6, dtype="f4").reshape(3, 2) + 1
        np.testing.assert_array_equal(out, want[:1] if rank == 0 else want[1:])

    run_ranks(call, 2)
