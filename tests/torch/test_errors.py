"""What a rank gets when ranks disagree, when one dies, or when a tensor is wrong."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from patience import patience

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import collops.torch  # noqa: E402
from collops.testing import RankErrors  # noqa: E402
from tests.torch.groups import run_group  # noqa: E402

# A loaded machine may run a rank late; the alternative is the group's time-out, 60 s.
SOON_S = patience(5.0)


Call = Callable[[], object]


def _sync(x: torch.Tensor) -> Call:
    return lambda: dist.all_reduce(x)


def _wait(x: torch.Tensor) -> Call:
    return lambda: dist.all_reduce(x, async_op=True).wait()


def _future(x: torch.Tensor) -> Call:
    return lambda: dist.all_reduce(x, async_op=True).get_future().wait()


def _later(x: torch.Tensor) -> Call:
    def call() -> None:
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            time.sleep(0.01)
        error = work.exception()
        assert error is not None and not work.is_success()
        raise error

    return call


def _functional(x: torch.Tensor) -> Call:
    return lambda: functional.all_reduce(x, "sum", dist.group.WORLD).sum().item()


def _coalesced(x: torch.Tensor) -> Call:
    def call() -> None:
        with dist._coalescing_manager():
            dist.all_reduce(x)

    return call


def _backward(x: torch.Tensor) -> Call:
    model = DistributedDataParallel(torch.nn.Linear(x.numel(), 1))
    return lambda: model(x).sum().backward()


def _sharded(x: torch.Tensor) -> Call:
    model = torch.nn.Linear(x.numel(), 2)
    fully_shard(model)
    return lambda: model(x).sum().backward()


Form = Callable[[torch.Tensor], Call]
FORMS: list[Form] = [
    *(_sync, _wait, _future, _later, _functional, _coalesced),
    *(_backward, _sharded),
]
# torch's C++ makes an error of its own with the message of ours.
THROUGH_CPP = (_future, _backward)


def caught(call: Callable[[], object]) -> tuple[str, str, float]:
    """The class and message of a call's error, and the seconds until it came."""
    begin = time.monotonic()
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - begin
    return "", "", time.monotonic() - begin


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__[1:])
def test_a_rank_that_dies(form: Form, tmp_path: Path) -> None:
    report = tmp_path / "report"

    def work(rank: int) -> None:
        call = form(torch.ones(4))
        dist.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        report.write_bytes(pickle.dumps(caught(call)))

    with pytest.raises(RankErrors):
        run_group(work, 2)
    kind, message, seconds = pickle.loads(report.read_bytes())
    assert kind == ("RuntimeError" if form in THROUGH_CPP else "PeerLostError"), message
    assert "rank 1 (pid" in message and "exited without reporting an error" in message
    assert seconds < SOON_S


@pytest.mark.parametrize("form", FORMS[:6], ids=lambda form: form.__name__[1:])
def test_ranks_that_disagree(form: Form) -> None:
    def work(rank: int) -> tuple[str, str, float]:
        call = form(torch.ones(4 + rank))
        dist.barrier()
        return caught(call)

    for kind, message, seconds in run_group(work, 2):
        assert kind == ("RuntimeError" if form in THROUGH_CPP else "RankMismatchError"), message
        assert "x's number of elements is 4 on rank 0" in message and "5 on rank 1" in message
        assert seconds < SOON_S


def _on_meta() -> torch.Tensor:
    return torch.ones(4, device="meta")


def _sparse() -> torch.Tensor:
    return torch.ones(4).to_sparse()


@pytest.mark.parametrize("make", [_on_meta, _sparse], ids=lambda make: make.__name__[1:])
@pytest.mark.parametrize("async_op", [False, True])
def test_a_tensor_that_is_refused_is_refused_for_all(
    make: Callable[[], torch.Tensor], async_op: bool
) -> None:
    def work(rank: int) -> list[tuple[str, str, float]]:
        def reduce() -> None:
            x = make() if rank == 0 else torch.ones(4)
            handle = dist.all_reduce(x, async_op=async_op)
            if handle is not None:
                handle.wait()

        def gather() -> None:
            x = make() if rank == 0 else torch.ones(4)
            dist.all_gather([torch.ones(4), torch.ones(4)], x)

        found = [caught(reduce), caught(gather)]
        x = torch.ones(3)
        dist.all_reduce(x)  # the group goes on
        assert x.tolist() == [2.0] * 3
        return found

    first, second = run_group(work, 2)
    for (kind, message, _), (other_kind, other_message, seconds) in zip(first, second, strict=True):
        assert kind == "UnsupportedError"
        assert "tensor" in message and ("on meta" in message or "sparse" in message)
        assert other_kind == "RankMismatchError"
        assert "rank 0" in other_message and "refused" in other_message
        assert seconds < SOON_S


def _coalesced_lists(rank: int) -> None:
    xs = [torch.ones(2), _on_meta() if rank == 0 else torch.ones(4), torch.ones(3)]
    dist.all_reduce_coalesced(xs)


def _rows_of_a_serving_list(rank: int) -> None:
    from collops.torch.serving import VllmCollectives

    class Engine(VllmCollectives):
        cpu_group = device_group = dist.group.WORLD

    rows = 2 + (rank == 0)
    Engine().all_gatherv([torch.ones(2, 3), torch.ones(rows, 3)])


def _shares_of_symmetric_memory(rank: int) -> None:
    import torch.distributed._symmetric_memory

    rows = 3 if rank == 0 else 4
    torch.ops.symm_mem.fused_matmul_reduce_scatter(
        torch.ones(rows, 2), torch.ones(2, 2), "sum", 0, dist.group.WORLD.group_name
    )


def _splits_of_uneven(rank: int) -> None:
    from collops.torch.uneven import all_gather_into_tensor_uneven

    splits = [2, 1] if rank == 0 else [2, 2]
    all_gather_into_tensor_uneven(torch.ones(4), torch.ones(2), splits)


def _gradients_into_out(rank: int) -> None:
    x = torch.ones(2, requires_grad=rank == 0)
    collops.torch.all_gatherv(x, [2, 2], out=torch.ones(4))


REFUSED: list[Callable[[int], None]] = [
    *(_coalesced_lists, _rows_of_a_serving_list, _shares_of_symmetric_memory),
    *(_splits_of_uneven, _gradients_into_out),
]


@pytest.mark.parametrize("call", REFUSED, ids=lambda call: call.__name__[1:])
def test_what_one_rank_refuses_the_others_hear_of(call: Callable[[int], None]) -> None:
    def work(rank: int) -> tuple[str, str, float]:
        found = caught(lambda: call(rank))
        x = torch.ones(3)
        dist.all_reduce(x)  # the group goes on, and both ranks are at the same call
        assert x.tolist() == [2.0] * 3
        return found

    (kind, message, _), (other, other_message, seconds) = run_group(work, 2)
    assert kind in ("ArgumentError", "UnsupportedError"), message
    assert other == "RankMismatchError", other_message
    assert "rank 0" in other_message and "refused" in other_message
    assert seconds < SOON_S


def _into_expanded(rank: int) -> dict[str, Call]:
    """Calls by name; the outputs of rank 0 have one element of memory."""
    x = torch.arange(4.0) + 10 * rank

    def out(count: int = 4, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full((1 if rank == 0 else count,), -1, dtype=dtype).expand(count)

    def both() -> list[torch.Tensor]:
        return [out(), out()]

    return {
        "all_reduce": lambda: dist.all_reduce(out()),
        "all_reduce, later": lambda: dist.all_reduce(out(), async_op=True).wait(),
        "all_reduce, bool": lambda: dist.all_reduce(out(dtype=torch.bool)),
        "broadcast, negative": lambda: dist.broadcast(out(dtype=torch.complex64).conj().imag, 1),
        "broadcast": lambda: dist.broadcast(out(), 1),
        "reduce": lambda: dist.reduce(out(), 0),
        "all_gather": lambda: dist.all_gather(both(), x),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(out(8), x),
        "reduce_scatter": lambda: dist.reduce_scatter(out(), [x, x]),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(out(2), x),
        "gather": lambda: dist.gather(x, both() if rank == 0 else None, 0),
        "scatter": lambda: dist.scatter(out(), [x, x] if rank == 1 else None, 1),
        "all_to_all": lambda: dist.all_to_all(both(), [x, x]),
        "all_to_all_single": lambda: dist.all_to_all_single(out(), x),
        "recv": lambda: dist.recv(out(), 1) if rank == 0 else dist.send(x, 0),
    }


def test_an_output_without_memory_for_each_element_is_refused_for_all() -> None:
    def work(rank: int) -> tuple[dict[str, tuple[str, str, float]], list[list[float]]]:
        found = {name: caught(call) for name, call in _into_expanded(rank).items()}
        # What is only read may be such a tensor, and the group goes on.
        x = torch.full((1,), rank + 1.0).expand(3)
        out, total = (torch.full((3,), rank + 1.0) for _ in range(2))
        dist.broadcast(x if rank == 1 else out, 1)
        dist.reduce(x if rank == 1 else total, 0)
        return found, [out.tolist(), total.tolist()]

    (first, values), (second, _) = run_group(work, 2)
    for name, (kind, message, _) in first.items():
        assert kind == "ArgumentError", (name, message)
        assert "in dim 0 of" in message and "are one in memory" in message, (name, message)
        other, other_message, seconds = second[name]
        assert other == "RankMismatchError" and "rank 0" in other_message, (name, other_message)
        assert seconds < SOON_S
    assert values == [[2.0] * 3, [3.0] * 3]


def test_a_message_that_is_refused_is_refused_for_both() -> None:
    def work(rank: int) -> tuple[str, str, float]:
        if rank == 0:
            return caught(lambda: dist.send(_on_meta(), 1))
        return caught(lambda: dist.recv(torch.ones(4), 0))

    (kind, message, _), (_, other_message, seconds) = run_group(work, 2)
    assert kind in ("ArgumentError", "UnsupportedError")
    assert "meta" in message
    assert "rank 0" in other_message
    assert seconds < SOON_S


def test_a_time_out_names_the_late_rank_and_the_last_calls(tmp_path: Path) -> None:
    def work(rank: int) -> str:
        dist.all_reduce(torch.ones(2, 3))
        if rank == 1:
            return caught(lambda: dist.send(torch.ones(1), 0))[1]  # which nobody receives
        kind, message, seconds = caught(lambda: dist.broadcast(torch.ones(5), 0))
        assert kind == "RankTimeoutError", message
        assert 1.5 < seconds < 1.5 + SOON_S
        return message

    message, _ = run_group(work, 2, timeout_s=2)
    assert "rank 1" in message
    assert (
        "the last calls of rank 0 in group '0': 1 all_reduce [2, 3] float32, 2 broadcast [5]"
        in (message)
    )


def test_sends_before_receives_wait_and_name_both() -> None:
    def work(rank: int) -> tuple[str, str, float]:
        return caught(lambda: dist.send(torch.ones(1 << 20), 1 - rank))

    found = run_group(work, 2, timeout_s=2)
    for rank, (kind, message, seconds) in enumerate(found):
        assert kind in ("RankTimeoutError", "PeerLostError"), message
        assert f"rank {1 - rank}" in message
        assert seconds < 2 + SOON_S
    assert any("send" in message.lower() for _, message, _ in found)


def test_abort_ends_the_calls_of_all_ranks() -> None:
    def work(rank: int) -> tuple[str, str, float]:
        if rank == 1:
            dist.barrier()
            dist.group.WORLD.abort()
            return "", "", 0.0
        return caught(lambda: [dist.barrier() for _ in range(2)])

    kind, message, seconds = run_group(work, 2)[0]
    assert kind == "AbortedError"
    assert "rank 1" in message
    assert seconds < SOON_S


PROGRAM = """
import sys, time, torch, torch.distributed as dist, collops.torch
rank = int(sys.argv[1])
store = dist.FileStore(sys.argv[2], 2)
dist.init_process_group("collops", store=store, rank=rank, world_size=2)
works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(2 - rank)]
future = works[-1].get_future()
# Python that runs inside torch's C++ when the interpreter ends.
future.then(lambda _: time.sleep(0.5))
works[0].wait()
# A rank that ends in a call ends that of the others: the first call is over for both.
store.set(f"over/{rank}", "1")
store.get(f"over/{1 - rank}")
print("end", flush=True)
"""


def _after_a_failure(rank: int) -> str:
    x = torch.ones(2 + rank)
    for _ in range(2):
        with pytest.raises(collops.RankMismatchError) as caught:
            dist.all_reduce(x)
    return str(caught.value)


def test_after_a_failure_the_message_advises_what_groups_have() -> None:
    advice = (
        "go on with collops.torch.shrink(), or with destroy_process_group() and "
        "init_process_group() on all ranks)"
    )
    for message in run_group(_after_a_failure, 2):
        assert advice in message, message


def test_no_hang_at_the_interpreters_end(tmp_path: Path) -> None:
    """One call of rank 0 has no partner; nothing is destroyed; a future is under way."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, str(rank), f"{tmp_path}/store"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for program in programs:
        out, err = program.communicate(timeout=patience(50))
        assert (program.returncode, out) == (0, "end\n"), err
        assert "terminate" not in err and "Fatal" not in err
