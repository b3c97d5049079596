"""torch tensors at the plain level: every call gives them back, with what numpy's arrays give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from tests.unit.plain.every_call import calls_of, flat

torch = pytest.importorskip("torch", reason="torch is not installed here: its tests are skipped")
WITHOUT_OUT = ("broadcast", "gatherv", "scatterv", "reduce", "barrier")


def as_torch(value: Any) -> Any:
    if isinstance(value, list):
        return [as_torch(one) for one in value]
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def parts_of(result: Any) -> list[Any]:
    if isinstance(result, tuple):
        rows, counts, handle = result
        return [rows, counts, handle.send_sizes, handle.recv_sizes, handle.positions]
    return [one for one in (result if isinstance(result, list) else [result]) if one is not None]


def work(rank: int, size: int) -> int:
    comm, done = collops.init(), 0
    twice = zip(calls_of(rank, size), calls_of(rank, size), strict=True)
    for (name, args, words), (_, fresh, _) in twice:
        if name == "exchange" or "S8" in str(args):
            continue
        want = flat(getattr(comm, name)(*args, **words))
        given = [as_torch(value) for value in fresh]
        words = {key: as_torch(value) for key, value in words.items()}
        results = [getattr(comm, name)(*given, **words)]
        if name not in WITHOUT_OUT and not isinstance(results[0], list):
            # Columns of a wider tensor where a dim is named: not contiguous.
            out = torch.full_like(parts_of(results[0])[0], -1)
            out = out.t().contiguous().t() if "dim" in words else out
            words["out"] = out
            results.append(getattr(comm, name)(*given, **words))
            assert parts_of(results[1])[0] is out, name
        for result in results:
            assert all(type(part) is torch.Tensor for part in parts_of(result)), name
            assert flat(result) == want, name
        done += 1
    return done


def test_every_call_gives_torch_tensors() -> None:
    assert run_ranks(work, 2, 2) == [len(calls_of(0, 2)) - 2] * 2
