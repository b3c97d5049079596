"""LinearParallel with experts on every kind of simulated device: what golden's cases, which are
conformance's, do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.conformance.devices import BACKENDS_HERE, HERE
from tests.conformance.runs import Run
from tests.devices.product_ranks import PLACES

LIMIT_S = patience(110.0)
TOKENS = np.array([[1, 2], [3, 4]], np.int32)  # rank 0 receives 4 rows, rank 1 6
K, N = 5, 3


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def rows_of(rank: int) -> Any:
    return numbers((int(TOKENS[rank].sum()), K), rank)


def weight(rank: int) -> Any:
    return numbers((1, N, K), 9 + rank)


def received(tokens: Any, rank: int) -> Any:
    """The rows of both ranks for the one expert of a rank."""
    begins = [own[:rank].sum() for own in tokens]
    return np.concatenate([rows_of(s)[b : b + tokens[s, rank]] for s, b in enumerate(begins)])


class Layer:
    """One rank's operation of type 5, with its tensors."""

    def __init__(self, device: Any, rank: int, fields: dict[str, Any], most: int) -> None:
        param = collops.LinearParallelParam(
            rank=rank, rank_size=2, type=5, moe_info=collops.MoeInfo(ep_size=2), **fields
        )
        self.device, self.op = device, collops.Operation(param)
        self.tensors = [device.tensor(rows_of(rank)), device.tensor(weight(rank))]
        self.most = np.empty(most, np.int32)
        self.out = device.poisoned((most, N), self.tensors[0])
        size = self.op.get_workspace_size(self.inputs(TOKENS), [self.out])
        self.workspace = device.poisoned((size,), device.tensor(np.zeros(1, np.uint8)))

    def inputs(self, tokens: Any) -> list[Any]:
        return [*self.tensors, tokens, self.most]

    def run(self, tokens: Any, stream: Any) -> None:
        self.op.execute(self.inputs(tokens), [self.out], self.workspace, stream=stream)


@pytest.mark.parametrize("where", PLACES)
def test_rows_that_do_not_fit_end_no_group_and_move_nothing(device: Any, where: str) -> None:
    """Nor does a call that would be captured. The next call of the same plan is right."""
    fewer = TOKENS - np.array([[0, 1], [0, 0]], np.int32)
    why = "rank 1 receives 6 rows by globalTokensPerExpertMatrix but maxOutputSize is 5"

    def work(rank: int) -> Any:
        layer, stream = Layer(device, rank, PLACES[where].fields, most=5), device.stream()
        before = device.array(layer.out).tobytes()
        error = collops.RankMismatchError if rank == 0 else collops.ArgumentError
        with pytest.raises(error, match=why):
            layer.run(TOKENS, stream)
        captured = pytest.raises(collops.Error, match="the stream is captured")
        with device.captured(stream) as graph, captured:
            layer.run(fewer, stream)
        graph.destroy()
        assert device.array_on(stream, layer.out).tobytes() == before
        layer.run(fewer, stream)
        return device.array_on(stream, layer.out)

    for rank, got in enumerate(PLACES[where].run(device, 2, work)):
        wanted = received(fewer, rank) @ weight(rank)[0].T
        assert np.array_equal(got[: len(wanted)], wanted)
        assert not got[len(wanted) :].any()


@pytest.mark.parametrize("backend", BACKENDS_HERE)
def test_the_plain_level(backend: str) -> None:
    """There and back, with the rows that came."""
    run = Run("plain", 2, HERE, backend=backend)

    def work(rank: int) -> None:
        comm = run.join(rank)
        added, counts = numbers((N,), 20 + rank), TOKENS[rank].reshape(2, 1)
        x, w, residual = (run.place(comm, each) for each in (rows_of(rank), weight(rank), added))
        y, rows = comm.all_to_allv_grouped_matmul(
            x, w, counts, trans_weight=True, residual=residual, return_rows=True
        )
        came = received(TOKENS, rank)
        assert np.array_equal(run.values(rows), came)
        assert np.array_equal(run.values(y), came @ weight(rank)[0].T + added)
        back = comm.grouped_matmul_all_to_allv(rows, w, counts, trans_weight=True)
        to = np.repeat([0, 1], TOKENS[rank])
        wanted = [x @ weight(to)[0].T for x, to in zip(rows_of(rank), to, strict=True)]
        assert np.array_equal(run.values(back), wanted)

    run_ranks(work, 2, timeout=LIMIT_S, env=run.environment)
