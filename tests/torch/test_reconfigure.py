"""Groups that get other ranks: torch.distributed._reconfigure() of torch 2.14, also without it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import collops  # noqa: E402
from collops.testing import run_ranks  # noqa: E402
from collops.torch.backend import create  # noqa: E402
from tests.torch.groups import TIMEOUT_S  # noqa: E402

HAS_RECONFIGURE = hasattr(dist, "_reconfigure")  # from torch 2.14 on


class Member:
    """A process with a group that has no ranks yet, and the store that the test has for itself."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.store = dist.FileStore(str(folder / "own"), size)
        store, limit = dist.FileStore(str(folder / "group"), size), timedelta(seconds=TIMEOUT_S)
        if HAS_RECONFIGURE:
            words = {"rank": rank, "world_size": size, "timeout": limit}
            dist.init_process_group("collops", store=store, enable_reconfigure=True, **words)
            self.group: Any = dist.group.WORLD
        else:
            words = {"group_rank": rank, "group_size": size, "timeout": limit, "group_id": "0"}
            self.group = create(
                SimpleNamespace(store=store, enable_reconfigure=True, **words), None
            )
        self.rounds = 0

    def handles(self) -> list[str]:
        """Those of all processes, which all call this."""
        self.rounds += 1
        self.store.set(f"{self.rounds}/{self.rank}", self.group.get_reconfigure_handle())
        keys = [f"{self.rounds}/{rank}" for rank in range(self.size)]
        return [self.store.get(key).decode() for key in keys]

    def turn(self, uuid: int, handles: Any, timeout_s: float | None = None) -> None:
        limit = None if timeout_s is None else timedelta(seconds=timeout_s)
        if HAS_RECONFIGURE:
            assert dist._reconfigure(uuid, handles, timeout=limit).wait()
        else:
            opts = SimpleNamespace(uuid=uuid, handles=handles, timeout=limit, hints={})
            assert self.group.reconfigure(opts).wait()

    def sum(self) -> list[float]:
        """Rank, number of ranks, and the sum over the ranks of the processes' numbers plus 1."""
        x = torch.tensor([self.rank + 1.0])
        self.group.allreduce(x).wait()
        return [self.group.rank(), self.group.size(), x.item()]


def told(run: Any) -> str:
    try:
        run()
    except collops.Error as error:
        return f"{error.name} {error.message}"
    return ""


def test_smaller_and_larger_in_turn(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        me = Member(tmp_path, rank, 3)
        assert me.group.supports_reconfigure
        me.turn(1, me.handles())
        found = [me.sum()]
        handles = me.handles()
        if rank != 1:
            me.turn(2, [handles[0], handles[2]])
            found.append(me.sum())
        me.turn(3, list(reversed(me.handles())))
        found.append(me.sum())
        me.turn(10 + rank, [me.group.get_reconfigure_handle()])
        found.append(me.sum())
        me.turn(4, set(me.handles()))
        return [*found, me.sum()]

    assert run_ranks(work, 3) == [
        [[0, 3, 6], [0, 2, 4], [2, 3, 6], [0, 1, 1], [0, 3, 6]],
        [[1, 3, 6], [1, 3, 6], [0, 1, 2], [1, 3, 6]],
        [[2, 3, 6], [1, 2, 4], [0, 3, 6], [0, 1, 3], [2, 3, 6]],
    ]


def test_members_and_newcomers_split_a_group(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        me = Member(tmp_path, rank, 3)
        handles = me.handles()
        if rank < 2:
            me.turn(1, handles[:2])
            me.group.split_group([1, 0]).barrier()
        me.turn(2, me.handles())
        part, x = me.group.split_group([2, 0]), torch.tensor([rank + 1.0])
        if part is not None:
            part.allreduce(x).wait()
        return x.item()

    assert run_ranks(work, 3) == [4, 2, 4]


def test_after_a_loss_and_after_an_abort(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        me = Member(tmp_path, rank, 3)
        me.turn(1, me.handles())
        me.sum()
        handles = me.handles()
        if rank == 2:
            me.group.shutdown()
            me.handles()
            me.handles()
            return None
        with pytest.raises(collops.PeerLostError):
            me.sum()
        me.turn(2, handles[:2])
        found = me.sum()
        me.handles()  # the sum has ended on all
        me.group.abort()
        with pytest.raises(collops.AbortedError):
            me.sum()
        me.turn(3, me.handles()[:2])
        return [found, me.sum()]

    assert run_ranks(work, 3) == [[[0, 2, 3]] * 2, [[1, 2, 3]] * 2, None]


def test_one_that_does_not_come(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        me = Member(tmp_path, rank, 2)
        handles = me.handles()
        heard = told(lambda: me.turn(1, handles, 0.2)) if rank == 0 else ""
        me.turn(2, me.handles())
        return heard[:52], me.sum()

    assert run_ranks(work, 2) == [
        ("ERROR_TIMEOUT group '0': rank 1 of 2 did not connect", [0, 2, 3]),
        ("", [1, 2, 3]),
    ]


def test_wrong_arguments_leave_the_group_as_it_is(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        me = Member(tmp_path, rank, 2)
        before = told(me.sum)
        me.turn(1, me.handles())
        handles = me.handles()
        heard = [
            told(lambda: me.turn(1, handles)),
            told(lambda: me.turn(2, [])),
            told(lambda: me.turn(2, [handles[0], handles[0]])),
            told(lambda: me.turn(2, [handles[1 - rank]])),
            told(lambda: me.turn(2, {handles[rank], "gloo:7"})),
            told(lambda: me.turn(2, [handles[rank], "7"])),
        ]
        return [before, *(text.partition(", collops:")[0] for text in heard)], me.sum()

    texts = [
        "allreduce: the group has no ranks yet: call torch.distributed._reconfigure() with the "
        "handles of all of them",
        "reconfigure: the uuid 1 was already used: each turn needs one of its own",
        "reconfigure: the handles lack this process's",
        "reconfigure: a handle is there twice",
        "reconfigure: the handles lack this process's",
        "reconfigure: a handle is 'gloo:7', which is none of a collops group",
        "reconfigure: a handle is '7', which is none of a collops group",
    ]
    heard, found = run_ranks(work, 2)[0]
    assert [text.replace("all_reduce", "allreduce") for text in heard] == [
        f"ERROR_INVALID_PARAM {text}" for text in texts
    ]
    assert found == [0, 2, 3]
