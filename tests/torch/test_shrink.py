"""collops.torch.shrink and torch.distributed.shrink_group: who is left, and what works then."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import collops.torch  # noqa: E402
from collops.errors import ErrorCode, raise_status  # noqa: E402
from collops.torch import shrinking  # noqa: E402
from tests.torch.groups import (  # noqa: E402
    default_group,
    end_here,
    run_group,
    run_losing,
    total,
)


def lose(group: Any = None) -> Any:
    """The group of those that are left, after the error of a call."""
    with pytest.raises(collops.PeerLostError):
        while True:
            dist.all_reduce(torch.ones(3), group=group)
    return collops.torch.shrink(group)


def check(group: Any) -> None:
    """Calls of every kind: of torch, operators by the group's name, started ones, messages."""
    size, own = dist.get_world_size(group), dist.get_rank(group)
    numbers = torch.arange(size)
    x = torch.full((2, 3), own + 1.0)
    expected = torch.full((2, 3), size * (size + 1) / 2)
    work = dist.all_reduce(x, group=group, async_op=True)
    assert work.wait() and torch.equal(work.get_future().value()[0], expected)
    parts = [torch.empty(rank + 1, dtype=torch.int64) for rank in range(size)]
    dist.all_gather(parts, torch.full((own + 1,), own), group=group)
    whole = torch.repeat_interleave(numbers, numbers + 1)
    assert torch.equal(torch.cat(parts), whole)
    sizes = [rank + 1 for rank in range(size)]
    rows = torch.full((own + 1, 2), float(own), requires_grad=True)
    gathered = collops.torch.all_gatherv(rows, sizes, group=group.group_name)
    assert torch.equal(gathered[:, 0], whole.float())
    gathered.sum().backward()
    assert torch.equal(rows.grad, torch.full((own + 1, 2), float(size)))
    scattered = collops.torch.reduce_scatterv(gathered.detach(), sizes, group=group.group_name)
    assert torch.equal(scattered, rows.detach() * size)
    sent = collops.torch.all_to_allv(
        numbers.repeat_interleave(own + 1), [own + 1] * size, sizes, group=group
    )
    assert torch.equal(sent, torch.full((sum(sizes),), own))
    product = collops.torch.all_gather_matmul(torch.ones(1, 2), torch.ones(2, 2), group=group)
    assert torch.equal(product, torch.full((size, 2), 2.0))
    after, before = (own + 1) % size, (own - 1) % size
    message, got = torch.tensor([own]), torch.empty(1, dtype=torch.int64)
    ops = [
        dist.P2POp(dist.isend, message, group=group, group_peer=after),
        dist.P2POp(dist.irecv, got, group=group, group_peer=before),
    ]
    for one in dist.batch_isend_irecv(ops):
        one.wait()
    assert got.item() == before
    window = group.allocate_tensor(5, dtype=torch.float32, device="cpu")
    dist.all_reduce(window.fill_(1.0), group=group)
    assert window.tolist() == [float(size)] * 5


@pytest.mark.parametrize(("size", "gone"), [(2, [1]), (3, [0]), (4, [0, 2])])
def test_the_default_group_goes_on(size: int, gone: list[int]) -> None:
    """Rank 0's process has the store: nothing of it is needed any more."""

    def work(rank: int) -> Any:
        old = default_group()
        pairs = dist.new_group([0, 1])
        total()
        if rank in gone:
            end_here()
        new = lose()
        while new.size() > size - len(gone):  # they need not die at the same moment
            new = lose()
        assert new is dist.group.WORLD and new.group_name != old.group_name
        check(new)
        with pytest.raises(collops.Error, match="make a new one on all ranks"):
            (pairs if rank < 2 else old).barrier()
        made = dist.new_group(list(range(1, new.size()))) if new.size() > 1 else new
        if dist.get_rank() > 0:
            total(made)
        dist.barrier()
        place = [dist.get_rank(), dist.get_world_size(), dist.get_process_group_ranks(new)]
        return [*place, dist.get_backend(), total()]

    left = size - len(gone)
    sums = left * (left + 1) / 2
    found = [[own, left, list(range(left)), "collops", sums] for own in range(left)]
    expected = [None if rank in gone else found.pop(0) for rank in range(size)]
    assert run_losing(work, size) == expected


def test_a_group_of_some_ranks_keeps_their_numbers_in_the_world() -> None:
    def work(rank: int) -> Any:
        group = dist.new_group([1, 2, 3])
        total()  # the group has met
        if rank == 0:
            return None
        total(group)
        if rank == 2:
            end_here()
        new = lose(group)
        assert dist.get_rank() == rank
        check(new)
        x = torch.tensor([rank])
        dist.broadcast(x, src=3, group=new)
        assert dist.get_group_rank(new, 3) == 1
        place = [dist.get_process_group_ranks(new), dist.get_rank(new)]
        dist.destroy_process_group(new)
        return [*place, x.item()]

    assert run_losing(work, 4) == [None, [[1, 3], 0, 3], None, [[1, 3], 1, 3]]


def test_again_and_again() -> None:
    def work(rank: int) -> Any:
        found = []
        for leaving in (0, 3, 1):
            total()
            if rank == leaving:
                end_here()
            new = lose()
            check(new)
            found.append((new.communicator.old_ranks, new.group_name))
        return found

    name = "0 without [0]", "0 without [0] without [2]", "0 without [0] without [2] without [0]"
    expected = [((1, 2, 3), name[0]), ((0, 1), name[1]), ((1,), name[2])]
    assert run_losing(work, 4) == [None, None, expected, None]


def test_a_loss_that_only_some_learn_of_in_shrink() -> None:
    """The others learn of it by a call of the new group: both get the same name at last."""
    made = shrinking._new_store

    def work(rank: int) -> Any:
        def and_then(*args: Any) -> Any:
            shrinking._new_store = made
            store, _ = made(*args)
            store.wait(["rank 0 has the group"])
            if rank == 3:
                end_here()
            raise_status(ErrorCode.ERROR_PEER_LOST, "rank 3 has ended")

        total()
        if rank == 1:
            end_here()
        if rank > 1:
            shrinking._new_store = and_then
        new = lose()
        if rank == 0:
            new.get_group_store().set("rank 0 has the group", "")
            with pytest.raises((collops.PeerLostError, collops.AbortedError)):
                while True:
                    total()
            new = collops.torch.shrink()
        x = torch.tensor([rank + 1.0])
        new.split_group([1, 0]).allreduce(x).wait()
        check(new)
        return new.group_name, x.item()

    name = "0 without [1] without [2]"
    assert run_losing(work, 4) == [(name, 4.0), None, (name, 4.0), None]


def test_rank_0_cannot_open_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError("no more")

    def work(rank: int) -> str:
        return told(collops.torch.shrink)

    monkeypatch.setattr(shrinking, "_open_store", fail)
    fault = "ERROR_RT_FAIL shrink: rank 0 cannot open a store: MemoryError: no more"
    assert run_group(work, 2) == [fault, fault]


def test_started_calls_end() -> None:
    def work(rank: int) -> Any:
        total()
        if rank == 1:
            end_here()
        works = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(3)]
        future = works[0].get_future()
        new = collops.torch.shrink()
        for one in works:
            with pytest.raises((collops.PeerLostError, collops.AbortedError)):
                one.wait()
        with pytest.raises(RuntimeError):
            future.wait()
        check(new)
        return new.size()

    assert run_losing(work, 3) == [2, None, 2]


shrink_group = pytest.mark.skipif(
    not hasattr(dist, "shrink_group"), reason="torch has it from 2.10 on"
)


@shrink_group
@pytest.mark.parametrize("of_some", [False, True], ids=["the default group", "another group"])
def test_torchs_own_call_on_a_healthy_group(of_some: bool) -> None:
    def work(rank: int) -> Any:
        group = dist.new_group([1, 2, 3]) if of_some else default_group()
        if rank == 0 and of_some:
            return None
        total(group)
        if rank == 2:
            with pytest.raises((collops.AbortedError, collops.PeerLostError)):
                total(group)
            return None
        new = dist.shrink_group([1 if of_some else 2], group, dist.distributed_c10d.SHRINK_ABORT)
        assert (new is dist.group.WORLD) == (not of_some)
        check(new)
        return dist.get_process_group_ranks(new)

    left = [1, 3] if of_some else [0, 1, 2]
    goes = [not ((of_some and rank == 0) or rank == 2) for rank in range(4)]
    assert run_group(work, 4) == [left if stays else None for stays in goes]


@shrink_group
def test_torchs_own_call_after_a_loss() -> None:
    def work(rank: int) -> Any:
        total()
        if rank == 0:
            end_here()
        with pytest.raises(collops.PeerLostError):
            total()
        new = dist.shrink_group([0])
        check(new)
        return dist.get_rank()

    assert run_losing(work, 3) == [None, 0, 1]


def told(run: Any) -> str:
    try:
        run()
    except collops.Error as error:
        return f"{error.name} {error.message}"
    return ""


def test_wrong_arguments_leave_the_group_as_it_is() -> None:
    def work(rank: int) -> Any:
        gloo = dist.new_group([0, 1], backend="gloo")
        runs = [
            lambda: collops.torch.shrink(gloo),
            lambda: collops.torch.shrink(exclude=[rank]),
            lambda: collops.torch.shrink(timeout_s=0),
        ]
        if hasattr(dist, "shrink_group"):
            runs += [
                lambda: dist.shrink_group([]),
                lambda: dist.shrink_group([1 - rank], None, 2),
                lambda: dist.shrink_group([1 - rank, 1 - rank]),
            ]
        return [told(run).partition(" ")[2] for run in runs], total()

    expected = [
        "shrink: the group must be one of collops, got ProcessGroup",
        "shrink: exclude[0] is 0, this rank: the ranks that stay call it; one that goes calls "
        "close()",
        "shrink: timeout_s must be a number of seconds above 0, got 0",
        "shrink_group: ranks_to_exclude is empty: collops.torch.shrink() finds out who is left",
        "shrink_group: shrink_flags must be SHRINK_DEFAULT or SHRINK_ABORT, got 2",
        "shrink: exclude[1] names rank 1 a second time",
    ]
    heard, added = run_group(work, 2)[0]
    assert (heard, added) == (expected[: len(heard)], 3.0)


def test_a_group_that_has_ended_and_one_without_this_rank() -> None:
    def work(rank: int) -> Any:
        old, other = dist.group.WORLD, dist.new_group([0])
        runs = [lambda: collops.torch.shrink(other)] if rank else []
        heard = [told(run).partition(" ")[2] for run in runs]
        collops.torch.shrink()
        return [*heard, told(lambda: collops.torch.shrink(old)).partition(" ")[2]], total()

    ended = (
        "shrink: group '0' has ended: pass the one that shrink() has returned, none for the "
        "default group, or make it again with new_group()"
    )
    outside = "shrink: this rank is not in the group: only its ranks call it"
    assert run_group(work, 2) == [([ended], 3.0), ([outside, ended], 3.0)]


def test_without_a_default_group() -> None:
    with pytest.raises(collops.ArgumentError, match="there is no default group"):
        collops.torch.shrink()
