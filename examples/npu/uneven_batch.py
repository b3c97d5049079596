"""Ranks with different numbers of rows on NPUs: gathered on all, summed, and scattered back.

A batch does not divide by the number of ranks: rank r has r + 1 documents' rows, rank 1 of three or
more has none. AllGatherV gives every rank all rows; ReduceScatterV adds what the ranks have made of
them, and gives each rank its own rows back. Here nothing is made of them, so the sum is `size`
times the rows, and the script checks both results on the host.

It needs torch, the torch_npu of the same version, and CANN. One host, one NPU per rank:

    collops run -n 8 examples/npu/uneven_batch.py
    torchrun --nproc-per-node 8 examples/npu/uneven_batch.py

Two hosts, with a rank table that names every NPU (rank_table_two_nodes.json is an example: put in
the addresses of your hosts, and for device_ip what `hccn_tool -i N -ip -g` prints). On each host:

    collops run --rank-table examples/npu/rank_table_two_nodes.json examples/npu/uneven_batch.py
"""

from __future__ import annotations

import os

import numpy as np
import torch
import torch_npu  # noqa: F401 (gives torch its device "npu")

import collops

WIDTH = 16


def deal(size: int) -> list[int]:
    """The rows of each rank: 1, 2, 3 ..., but none on rank 1 of three or more."""
    return [0 if rank == 1 and size > 2 else rank + 1 for rank in range(size)]


def rows_of(rank: int, rows: int) -> torch.Tensor:
    """A rank's rows: small integers, which sums of float32 keep exactly."""
    return torch.arange(rows * WIDTH, dtype=torch.float32).reshape(rows, WIDTH) + 1000 * rank


def main() -> None:
    """What each rank does."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # Before the operations are made: their communicator belongs to this NPU.
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    rows = deal(size)
    counts = np.array(rows) * WIDTH  # in elements, on the host
    displs = np.concatenate([[0], counts.cumsum()[:-1]])
    mine, total = counts[rank : rank + 1], int(counts.sum())

    # The backend is hccl by default. Both operations use one communicator.
    gather = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=size))
    scatter = collops.Operation(collops.ReduceScatterVParam(rank=rank, rank_size=size))
    own = rows_of(rank, rows[rank]).npu()
    # The last input is only described: its length says how many rows there will be.
    [batch] = gather.forward([own, mine, counts, displs, np.empty(total // WIDTH, np.float16)])
    [back] = scatter.forward([batch, counts, displs, mine, np.empty(rows[rank], np.float16)])

    whole = torch.cat([rows_of(number, count) for number, count in enumerate(rows)])
    assert torch.equal(batch.cpu().reshape(-1, WIDTH), whole)
    assert torch.equal(back.cpu().reshape(-1, WIDTH), size * rows_of(rank, rows[rank]))
    print(f"rank {rank} of {size}: {rows[rank]} of {len(whole)} rows, gathered and scattered back")


if __name__ == "__main__":
    main()
