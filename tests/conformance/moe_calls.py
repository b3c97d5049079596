"""moe_dispatch and moe_combine: calls on tokens of every type and routings of every kind."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from collops.golden.data import fill
from collops.golden.data.dtypes import DTYPES
from collops.golden.operators import moe

import collops
from tests.conformance.operator_runs import Outputs
from tests.conformance.runs import Run, as_real

FLOATS = ("float32", "float16", "bfloat16")
# Who names which experts; of all ranks together.
ROUTINGS = ("any", "none", "one expert", "one rank's", "twice the same", "one source")


class Tokens(NamedTuple):
    """Tokens of one type on every rank, and their experts."""

    dtype: str
    ranks: int
    hidden: int = 5
    local_experts: int = 2
    top_k: int = 2
    tokens: int = 7  # more or less
    routing: str = "any"
    ids: str = "int64"
    kind: str = "index"
    quantize: str | None = None
    scales: bool = False
    weights: str | None = "float32"

    @property
    def id(self) -> str:
        return str(tuple(self))

    @property
    def experts(self) -> int:
        return self.ranks * self.local_experts

    def count(self, rank: int) -> int:
        """Tokens of a rank: none on one of several."""
        return 0 if self.ranks > 1 and rank == 1 else self.tokens + 3 * rank


@lru_cache(maxsize=512)
def x_of(call: Tokens, rank: int) -> Any:
    return fill((call.count(rank), call.hidden), call.dtype, rank, 0, call.kind)


@lru_cache(maxsize=512)
def ids_of(call: Tokens, rank: int) -> Any:
    shape = call.count(rank), call.top_k
    ids = np.random.default_rng([rank, call.top_k]).integers(-1, call.experts, shape)
    if call.routing == "none" or (call.routing == "one source" and rank):
        ids[:] = -1
    elif call.routing == "one expert":
        ids[:] = call.experts - 1
    elif call.routing == "one rank's":
        ids %= call.local_experts
    elif call.routing == "twice the same":
        ids[:] = ids[:, :1]
    return ids.astype(call.ids)


def weights_of(call: Tokens, rank: int) -> Any:
    if call.weights is None:
        return None
    weights = fill((call.count(rank), call.top_k), call.weights, rank, 7, call.kind).copy()
    weights[:1] = 0
    return weights


def scales_of(call: Tokens, rank: int) -> Any:
    return fill((call.count(rank),), "float32", rank, 3, "random") if call.scales else None


@lru_cache(maxsize=128)
def dispatched(call: Tokens) -> Any:
    ranks = range(call.ranks)
    return moe.moe_dispatch(
        [x_of(call, r) for r in ranks],
        [ids_of(call, r) for r in ranks],
        call.experts,
        quantize=call.quantize,
        scales=[scales_of(call, r) for r in ranks] if call.scales else None,
    )


def rows_of(call: Tokens, rank: int) -> Any:
    """What the experts of a rank have made, of another hidden size."""
    shape = int(dispatched(call)[rank].counts.sum()), call.hidden + 1
    return fill(shape, call.dtype, rank, 5, call.kind)


def dispatches(run: Run) -> list[Tokens]:
    one = Tokens("float32", run.ranks)
    return [
        *(one._replace(dtype=dtype) for dtype in DTYPES),
        *(one._replace(routing=routing, ids="int32") for routing in ROUTINGS),
        one._replace(local_experts=1),
        one._replace(top_k=1, local_experts=16, dtype="int16"),
        one._replace(top_k=one.experts, hidden=1),
        one._replace(dtype="int8", hidden=33, scales=True, local_experts=3),
        *(
            one._replace(dtype=dtype, hidden=hidden, quantize="int8", kind=kind)
            for dtype in FLOATS
            for hidden, kind in ((1, "index"), (37, "random"), (64, "cancel"))
        ),
        one._replace(quantize="int8", local_experts=1, tokens=0),
        # Enough for several threads.
        one._replace(tokens=700, hidden=1025),
        one._replace(tokens=700, hidden=1025, quantize="int8"),
    ]


def combines(run: Run) -> list[Tokens]:
    one = Tokens("float32", run.ranks, kind="random")
    return [
        *(one._replace(dtype=dtype, weights=w) for dtype in FLOATS for w in (*FLOATS, None)),
        *(one._replace(routing=routing, ids="int32") for routing in ROUTINGS),
        one._replace(local_experts=1),
        one._replace(top_k=1, local_experts=16, dtype="float16"),
        *(one._replace(dtype=d, top_k=one.experts, hidden=70) for d in FLOATS),
        *(one._replace(dtype=d, kind="special", hidden=40, top_k=3) for d in FLOATS),
        one._replace(tokens=700, hidden=1025, dtype="bfloat16", top_k=4),
    ]


def wanted_rows(call: Tokens, run: Run) -> Outputs:
    return [
        [one.rows, one.counts, one.send_counts, one.recv_counts]
        + ([] if one.scales is None else [one.scales])
        for one in dispatched(call)
    ]


def wanted_sums(call: Tokens, run: Run) -> Outputs:
    ranks = range(run.ranks)
    weights = None if call.weights is None else [weights_of(call, r) for r in ranks]
    rows = [rows_of(call, r) for r in ranks]
    sums = moe.moe_combine(rows, [ids_of(call, r) for r in ranks], call.experts, weights)
    return [[one] for one in sums]


def moe_dispatch(comm: collops.Communicator, call: Tokens, run: Run) -> list[Any]:
    """The first call, and one with its handle and memory for the rows."""
    x = run.place(comm, as_real(x_of(call, comm.rank), call.dtype))
    ids = run.place(comm, ids_of(call, comm.rank))
    scales = run.place(comm, scales_of(call, comm.rank)) if call.scales else None
    words: dict[str, Any] = {"quantize": call.quantize, "scales": scales}
    rows, counts, handle = comm.moe_dispatch(x, ids, call.experts, **words)
    out = run.poisoned(comm, rows.shape, rows.dtype)
    again, _, kept = comm.moe_dispatch(x, handle=handle, out=out, **words)
    assert again is out and out.dtype == rows.dtype and out.tobytes() == rows.tobytes()
    outputs = [rows, counts, handle.send_sizes, handle.recv_sizes]
    if kept.scales is not None:
        assert kept.scales.tobytes() == handle.scales.tobytes()
        outputs.append(kept.scales)
    return outputs


def moe_combine(comm: collops.Communicator, call: Tokens, run: Run) -> list[Any]:
    ids = ids_of(call, comm.rank)
    _, _, handle = comm.moe_dispatch(np.zeros((len(ids), 1), "i1"), ids, call.experts)
    rows = run.place(comm, as_real(rows_of(call, comm.rank), call.dtype))
    weights = weights_of(call, comm.rank)
    if weights is not None:
        assert call.weights is not None
        weights = run.place(comm, as_real(weights, call.weights))
    before = rows.tobytes()
    out = run.poisoned(comm, (len(ids), call.hidden + 1), rows.dtype)
    assert comm.moe_combine(rows, weights, handle, out=out) is out
    assert comm.moe_combine(rows, weights, handle).tobytes() == out.tobytes()
    assert rows.tobytes() == before, "rows were changed"
    return [out]
