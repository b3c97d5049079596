"""A call on a stream that fails leaves its inputs as they were, as on CPUs (tests/faults)."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.conformance.devices import BACKENDS_HERE

ROWS = [1000, 3000, 2000]
LEAVES = 1  # the rank
LIMIT_S = patience(60)


def calls_of(device: Any, rank: int) -> list[tuple[str, list[Any], dict[str, Any]]]:
    """One call of every kind that moves data, with what this rank passes."""
    size, own, whole = len(ROWS), ROWS[rank], sum(ROWS)
    sends, receives = [rank + 1] * size, [peer + 1 for peer in range(size)]

    def tensor(*shape: int) -> Any:
        values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        return device.tensor(values + 100000 * (rank + 1))

    def output(*shape: int) -> dict[str, Any]:
        return {"out": device.poisoned(shape, tensor(1))}

    return [
        ("all_gatherv", [tensor(own, 2), ROWS], output(whole, 2)),
        ("reduce_scatterv", [tensor(whole, 2), ROWS], output(own, 2)),
        ("all_reduce", [tensor(whole)], output(whole)),
        ("broadcast", [tensor(whole)], {"root": 0}),
        ("all_to_allv", [tensor(sum(sends), 4), sends, receives], output(sum(receives), 4)),
        ("matmul_all_reduce", [tensor(64, 8), tensor(8, 16)], output(64, 16)),
        ("all_gather_matmul", [tensor(64, 8), tensor(8, 16)], output(192, 16)),
        ("matmul_reduce_scatter", [tensor(192, 8), tensor(8, 16)], output(64, 16)),
    ]


@pytest.mark.parametrize("backend", BACKENDS_HERE)
def test_inputs_are_as_they_were(device: Any, backend: str) -> None:
    def work(rank: int) -> list[str]:
        device.choose(rank)
        wrong = []
        for number, (name, args, options) in enumerate(calls_of(device, rank)):
            comm = collops.init(backend=backend, comm_domain=f"call {number}", timeout_s=LIMIT_S)
            inputs = [one for one in args if not isinstance(one, list)]
            if name == "broadcast" and rank != options["root"]:
                inputs = []
            before = [device.array(x) for x in inputs]
            for _ in range(1 + number % 2):
                getattr(comm, name)(*args, **options)
            if rank == LEAVES:
                time.sleep(0.05)  # the others have made the next one
                comm.close()
                continue
            with pytest.raises((collops.PeerLostError, collops.AbortedError)):
                while True:
                    getattr(comm, name)(*args, **options)
                    device.array(args[0])  # waits
            for x, values in zip(inputs, before, strict=True):
                if not np.array_equal(device.array(x), values):
                    wrong.append(name)
            comm.close()
        return wrong

    assert run_ranks(work, len(ROWS), timeout=LIMIT_S) == [[]] * len(ROWS)


# A process whose call has failed on an NPU makes no other one.
test_inputs_are_as_they_were.only_on = "gpu"  # type: ignore[attr-defined]
