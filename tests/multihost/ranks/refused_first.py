"""One rank whose first contact is an operation's first call, which the last rank refuses."""

from __future__ import annotations

import os

import numpy as np

import collops


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    param = collops.AllGatherVParam(rank=rank, rank_size=size, backend="ucx")
    operation = collops.Operation(param)
    counts, displs = np.full(size, 2), np.arange(size) * 2
    own = [counts[:1], counts, displs, np.empty(size, np.float16)]
    x = np.full((1, 2), rank, np.float32)
    try:
        operation.forward([x[:, :1].copy() if rank == size - 1 else x, *own])
        print("no error", flush=True)
    except collops.Error as error:
        print("refused", error.name, flush=True)
    [out] = operation.forward([x, *own])
    assert out[:, 0].tolist() == list(range(size)), out
    print("gathered", flush=True)


if __name__ == "__main__":
    main()
