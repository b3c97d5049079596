"""Memory of GPUs for programs without torch and CuPy: what is refused where there is no GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops

WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "no shape": (
        ("four", np.int8),
        "cuda_empty: shape must be a list of whole numbers, got 'four'",
    ),
    "no dtype": ((4, "float5"), "cuda_empty: dtype 'float5' is unknown; did you mean 'float64'"),
    "negative": (((2, -1), np.int8), r"cuda_empty: sizes must be >= 0, got \[2, -1\]"),
    "too many dims": (((1,) * 9, np.int8), "cuda_empty: shape must have at most 8 dims, got 9"),
    "references": ((4, object), "cuda_empty: elements of type object cannot be shared"),
    "texts": ((4, "S3"), "cuda_empty: an array on a GPU has elements of int8, .*; got bytes24"),
    "byte order": ((4, ">f4"), "cuda_empty: dtype >f4 must have the byte order of a GPU"),
    "no index": ((4, np.int8, "cuda"), "cuda_empty: device must be a whole number, got 'cuda'"),
    "below 0": ((4, np.int8, -1), "cuda_empty: device must be the index of a GPU, got -1"),
    "too large": ((1 << 62, np.int16), "cuda_empty: 9223372036854775808 bytes are too many"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name: str) -> None:
    arguments, text = WRONG[name]
    with pytest.raises(collops.ArgumentError, match=text):
        collops.cuda_empty(*arguments)


def test_types_of_torch() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(
        collops.ArgumentError, match="a type of numpy or ml_dtypes, got torch.float32"
    ):
        collops.cuda_empty(4, torch.float32)


def test_without_a_driver() -> None:
    calls = {
        "cuda_empty": lambda: collops.cuda_empty((2, 3), np.float32).shape == (2, 3),
        "cuda_empty_cache": lambda: collops.cuda_empty_cache() >= 0,
    }
    for name, call in calls.items():
        try:
            assert call()
        except collops.UnsupportedError as error:
            assert error.message.startswith(f"{name}: CUDA's driver")


def test_memory_of_a_communicator() -> None:
    with collops.init(0, 1, backend="shm", comm_domain="arrays") as comm:
        assert comm.empty(3, np.int8, device="cpu").shape == (3,)
        for device in ("gpu", "cuda:", "cuda:-1", 0):
            with pytest.raises(collops.ArgumentError, match="empty: device must be None, "):
                comm.empty(3, np.int8, device=device)
        with pytest.raises(collops.UnsupportedError, match="backend shm moves tensors of the CPU"):
            comm.empty(3, np.int8, device="cuda")
