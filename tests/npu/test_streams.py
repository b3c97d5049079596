"""Which stream a call runs on, and that it returns before its data has moved."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

SLOW = {"COLLOPS_SIM_DELAY_US": "20000"}
# The simulator reads a call's counts again when the stream comes to it.
LATE = {"COLLOPS_SIM_DELAY_US": "0", "COLLOPS_SIM_LATE_COUNTS": "1"}
ROUNDS = 12
SHAPES = 9  # one more than an operation keeps plans


def call(npu: Any, rank: int) -> tuple[collops.Operation, list[Any], Any, Any]:
    """A planned AllGatherV of two ranks: operation, inputs, output, and where x comes from."""
    op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2))
    counts = np.array([4, 4])
    x = npu.poisoned((4,), npu.tensor(np.zeros(1, np.int32)))
    ins = [x, counts[:1], counts, np.array([0, 4]), np.empty(8, np.float16)]
    out = npu.poisoned((8,), x)
    op.get_workspace_size(ins, [out])
    return op, ins, out, npu.poisoned((4,), x)


def test_a_call_returns_before_its_data_has_moved(npu: Any, torch_module: ModuleType) -> None:
    def work(rank: int) -> int:
        npu.choose(rank)
        op, ins, out, _ = call(npu, rank)
        op.execute(ins, [out])
        pending = 0
        for _ in range(ROUNDS):
            op.execute(ins, [out])
            pending += not torch_module.npu.current_stream().query()
            torch_module.npu.synchronize()
        return pending

    for pending in run_ranks(work, 2, env=SLOW):
        assert pending > ROUNDS // 2


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("how", ["current", "object", "number"])
def test_a_call_follows_what_its_stream_waits_for(
    npu: Any, torch_module: ModuleType, how: str, waits: bool
) -> None:
    """x is written on one stream and sent on another; without the event, old values are sent."""

    def work(rank: int) -> int:
        npu.choose(rank)
        torch = torch_module
        op, ins, out, source = call(npu, rank)
        writing, sending = torch.npu.Stream(), torch.npu.Stream()
        stale = 0
        for number in range(ROUNDS):
            source.copy_(torch.full((4,), 10 * number + rank, dtype=torch.int32))
            torch.npu.synchronize()
            with torch.npu.stream(writing):
                ins[0].copy_(source)
            if waits:
                sending.wait_stream(writing)
            if how == "current":
                with torch.npu.stream(sending):
                    op.execute(ins, [out])
            else:
                # A number is told by the stream once what torch_npu holds back for it is there.
                stream = sending if how == "object" else sending.npu_stream
                op.execute(ins, [out], stream=stream)
            sending.synchronize()
            want = [10 * number] * 4 + [10 * number + 1] * 4
            stale += npu.array(out).tolist() != want
            torch.npu.synchronize()
        return stale

    for stale in run_ranks(work, 2, env=SLOW):
        assert (stale == 0) == waits, f"{stale} of {ROUNDS} results were old"


def test_values_that_are_no_stream_are_refused(npu: Any) -> None:
    def work(rank: int) -> list[tuple[int, str]]:
        npu.choose(rank)
        op, ins, out, _ = call(npu, rank)
        errors = []
        for stream in ("fast", 0):
            with pytest.raises(collops.Error) as caught:
                op.execute(ins, [out], stream=stream)
            errors.append((caught.value.code, caught.value.message))
        return errors

    for text, null in run_ranks(work, 2):
        assert text[0] == null[0] == 21
        assert "stream must be None, a number or a torch stream, got str" in text[1]
        assert "there is no stream: pass NPU tensors, or stream=" in null[1]


class Gather:
    """The call of one number, of one of nine shapes: its tensors and what they should become."""

    def __init__(self, npu: Any, rank: int, number: int, dtype: str) -> None:
        self.npu, self.rank = npu, rank
        shape = number % SHAPES
        self.counts = [shape + 1, 3]
        self.displs = [0, shape + 2]  # one element between the blocks
        self.values = [
            np.arange(count, dtype=dtype) + 1000 * r + 20 * number + 1
            for r, count in enumerate(self.counts)
        ]
        self.x = npu.tensor(self.values[rank])
        self.out = npu.poisoned((shape + 5,), self.x)

    def run(self, op: collops.Operation, stream: Any) -> None:
        """Plans it and puts it on the stream; the lists that it was given end here."""
        counts, displs = np.array(self.counts), np.array(self.displs)
        own = counts[self.rank : self.rank + 1]
        ins = [self.x, own, counts, displs, np.empty(len(self.out), np.float16)]
        op.get_workspace_size(ins, [self.out])
        op.execute(ins, [self.out], stream=stream)

    def poison(self) -> None:
        """Forgets the result."""
        self.out.copy_(self.npu.poisoned(tuple(self.out.shape), self.out))

    def is_right(self) -> bool:
        """Whether the output is right, bit for bit."""
        want = np.concatenate([self.values[0], [0], self.values[1]]).astype(self.values[0].dtype)
        return bool(np.array_equal(self.npu.array(self.out), want))


def connect(npu: Any, rank: int) -> collops.Operation:
    """An operation whose ranks have met."""
    npu.choose(rank)
    op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2))
    assert npu.gather(op, rank, 2) == npu.gathered(2)
    return op


# float64 travels as bytes, with counts that are made for the call.
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_graph_is_replayed_after_its_plans_have_fallen_out(
    npu: Any, torch_module: ModuleType, dtype: str
) -> None:
    def work(rank: int) -> int:
        op = connect(npu, rank)
        calls = [Gather(npu, rank, number, dtype) for number in range(SHAPES)]
        others = [Gather(npu, rank, number, dtype) for number in range(SHAPES)]
        torch_module.npu.synchronize()
        stream = torch_module.npu.Stream()
        with npu.captured(stream) as graph:
            for call in calls:
                call.run(op, stream)
        assert not any(call.is_right() for call in calls)
        for call in others:
            call.run(op, stream)
        right = 0
        for _ in range(2):
            graph.replay(stream)
            stream.synchronize()
            right += sum(call.is_right() for call in calls)
            for call in calls:
                call.poison()
            torch_module.npu.synchronize()
        graph.destroy()
        return right + sum(call.is_right() for call in others)

    assert run_ranks(work, 2, env=LATE) == [3 * SHAPES] * 2
